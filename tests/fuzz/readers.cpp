// What is done with an input, and what must hold for one that is accepted.
#include "tests/fuzz/readers.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "titanium/base/error.h"
#include "titanium/base/text/json.h"
#include "titanium/checkpoint/dcp/metadata.h"
#include "titanium/checkpoint/safetensors/header.h"
#include "titanium/checkpoint/torch_file/pickle_reader.h"
#include "titanium/checkpoint/torch_file/pickle_writer.h"
#include "titanium/config/reading/toml_document.h"
#include "titanium/data/document.h"
#include "titanium/data/loader_state.h"
#include "titanium/data/striping.h"
#include "titanium/data/tokenizer/pipeline.h"
#include "titanium/observe/page/page.h"
#include "titanium/observe/page/text_view.h"
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

// What the bytes of an accepted record say.
void use(const data::Record& record) {
  try {
    if (data::has_tokens(record)) {
      data::document_tokens(record);
      return;
    }
    const std::string text = data::document_text(record, "text");
    if (record.block->content != data::Content::kJson) return;
    require(nlohmann::json::parse(record.bytes).at("text") == text, "the text is another one than the library's");
  } catch (const data::BadRecord&) {
  }
}

// A file that was read to its end has the same records when it is read in blocks, as lanes read it.
void compare_blocks(const std::vector<data::SourceFile>& files, const data::RecordSourceOptions& options,
                    const std::vector<std::string>& expected) {
  std::vector<data::SourceFile> parts;
  for (const auto& [file, part] : data::find_blocks(files, std::max<int64_t>(files[0].size / 7, 1), options.reading)) {
    parts.push_back(files[static_cast<size_t>(file)]);
    parts.back().part = part;
  }
  data::RecordSource source(parts, options);
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto record = source.read(static_cast<int64_t>(i));
    require(record && record->bytes == expected[i], "a record of a block is not that of the file");
  }
  require(!source.read(static_cast<int64_t>(expected.size())), "blocks have more records than the file");
}

// The first file is read as data: from the beginning, then again from its middle, and in blocks.
void read_data_file(const fs::path& path) {
  constexpr int64_t kMostRecords = 500;
  const data::RecordSourceOptions options{.reading = {.text_field = "text"}};
  data::RecordSource source(path, options);
  std::vector<std::string> records;
  int64_t number = 0;
  while (const auto record = number < kMostRecords ? source.read(number) : std::nullopt) {
    use(*record);
    records.emplace_back(record->bytes);
    ++number;
  }
  if (number > 0) require(source.read(number / 2).has_value(), "a record is gone");
  if (number == kMostRecords) return;
  try {
    compare_blocks(source.files(), options, records);
  } catch (const Error& error) {
    throw Broken(fmt::format("read in blocks only: {}", error.what()));
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

void read_one_data_file(const Input& files) {
  const Folder folder(files);
  read_data_file(folder.path() / files[0].name);
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
