// What is done with an input, and what must hold for one that is accepted.
#include "tests/fuzz/readers.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "titanium/base/error.h"
#include "titanium/base/json.h"
#include "titanium/checkpoint/dcp/metadata.h"
#include "titanium/checkpoint/safetensors/header.h"
#include "titanium/checkpoint/torch_file/pickle_reader.h"
#include "titanium/checkpoint/torch_file/pickle_writer.h"
#include "titanium/config/toml_document.h"
#include "titanium/data/document.h"
#include "titanium/data/loader_state.h"
#include "titanium/data/tokenizer/pipeline.h"
#include "titanium/observe/page.h"
#include "titanium/observe/text_view.h"
#include "titanium/schedule/csv.h"
#include "titanium/train/flight/analysis.h"

namespace titanium::fuzz {
namespace {

namespace fs = std::filesystem;

struct Broken : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void require(bool good, const char* property) {
  if (!good) throw Broken(property);
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// The files of an input in memory's file system, as long as this lives.
class Folder {
 public:
  explicit Folder(const Input& input) : path_(fmt::format("/dev/shm/fuzz_readers_{}", ::getpid())) {
    fs::create_directories(path_);
    for (const File& file : input) std::ofstream(path_ / file.name, std::ios::binary) << file.content;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void use(const data::Pipeline& pipeline) {
  for (const std::string& text :
       {std::string("aabab \xc3\xa9\n"), std::string(5'000, 'a') + " b", std::string(3'000, ' ')}) {
    const auto ids = pipeline.encode(text, data::SpecialInText::kToken);
    pipeline.decode(ids, true);
  }
}

}  // namespace

void read_one_pickle(const Input& files) {
  const std::string& input = files[0].content;
  const auto value = checkpoint::read_pickle(bytes_of(input), "input");
  const std::string shown = value.repr(), written = checkpoint::write_pickle(value);
  require(checkpoint::read_pickle(bytes_of(written), "written").repr() == shown, "what was written reads differently");
  const auto metadata = checkpoint::parse_dcp_metadata(bytes_of(input), "input");
  for (const auto& [name, entry] : metadata.entries) {
    if (const auto* tensor = std::get_if<checkpoint::DcpTensor>(&entry)) volume(tensor->shape);
  }
}

void read_one_json(const Input& files) {
  const std::string& input = files[0].content;
  const auto json = parse_json(input);
  require(json == nlohmann::json::parse(input), "the value is another one than the library's");
  try {
    data::loader_state_from_json(input);
  } catch (const Error&) {
  }
  data::TokenizerParts parts = data::parts_of_json(json);
  use(data::build_pipeline(parts));
}

namespace {

void show(const config::TomlNode& node, size_t& shown) {
  shown += config::to_short_text(node.value).size();
  for (const config::TomlNode& child : node.children) show(child, shown);
}

}  // namespace

void read_one_toml(const Input& files) {
  const std::string& input = files[0].content;
  size_t shown = 0;
  show(config::parse_toml(input, "input"), shown);
}

void read_one_safetensors(const Input& files) {
  const std::string& input = files[0].content;
  const auto header = checkpoint::parse_safetensors_header(bytes_of(input), "input");
  uint64_t end = 0;
  for (const auto& entry : header.entries) {
    require(entry.begin == end && entry.end >= entry.begin, "entries do not follow each other");
    end = entry.end;
  }
  require(header.data_offset + end == input.size(), "entries do not cover the file");
}

void read_one_csv(const Input& files) {
  const std::string& input = files[0].content;
  const auto table = schedule::parse_csv(input, "input");
  const std::string written = schedule::to_csv(table);
  require(schedule::to_csv(schedule::parse_csv(written, "written")) == written, "what was written reads differently");
}

// The first file is read as data: from the beginning, and then again from its middle.
void read_one_data_file(const Input& files) {
  const Folder folder(files);
  data::RecordSource source(folder.path() / files[0].name, {.reading = {.text_field = "text"}});
  int64_t records = 0;
  for (; records < 500; ++records) {
    const auto record = source.read(records);
    if (!record) break;
    try {
      if (data::has_tokens(*record)) {
        data::document_tokens(*record);
        continue;
      }
      const std::string text = data::document_text(*record, "text");
      if (record->block->content != data::Content::kJson) continue;
      require(nlohmann::json::parse(record->bytes).at("text") == text, "the text is another one than the library's");
    } catch (const data::BadRecord&) {
    }
  }
  if (records > 0) require(source.read(records / 2).has_value(), "a record is gone");
}

void read_one_vocabulary(const Input& files) {
  const std::string& input = files[0].content;
  const std::string& name = files[0].name;
  data::TokenizerParts parts = name == "tekken.json"       ? data::parts_of_tekken(parse_json(input))
                               : name == "tokenizer.model" ? data::parts_of_sentencepiece(input)
                                                           : data::parts_of_ranks(input);
  use(data::build_pipeline(parts));
}

void read_one_flight(const Input& files) {
  const Folder folder(files);
  require(!train::explain_flights(train::read_flight_dumps(folder.path())).empty(), "there is no explanation");
}

void read_one_run(const Input& files) {
  const Folder folder(files);
  std::vector<std::unique_ptr<observe::RunFolder>> runs;
  runs.push_back(std::make_unique<observe::RunFolder>(folder.path()));
  const observe::RunData& run = runs[0]->data();
  require(std::ranges::is_sorted(run.columns.steps, std::less_equal{}), "steps do not increase");
  observe::status_line(observe::summarize(run, 1e9));
  observe::loss_plot(run);
  require(nlohmann::json::accept(observe::page_data(runs, {.now = 1e9})), "the page's data is no JSON");
}

}  // namespace titanium::fuzz
