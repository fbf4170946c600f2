#include <algorithm>
#include <sstream>

#include "titanium/base/file.h"
#include "titanium/base/json.h"
#include "titanium/data/tokenizer/pipeline.h"
#include "titanium/data/tokenizer/unicode.h"

namespace titanium::data {
namespace {

namespace fs = std::filesystem;

// Runs `read` and puts the file's name before what it complains about.
template <typename Read>
auto with_name_of(const fs::path& file, const Read& read) {
  try {
    return read();
  } catch (const JsonError& error) {
    throw UsageError(fmt::format("{} {}. Fetch or write it again.", file.string(), error.what()));
  } catch (const Error& error) {
    throw UsageError(fmt::format("{}: {}", file.string(), error.what()));
  } catch (const Json::exception&) {
    throw UsageError(fmt::format("{}: a member is missing or of another type. Fetch it again.", file.string()));
  }
}

std::string text_of(const fs::path& file) {
  std::string text = read_file(file, "tokenizer file");
  return replace_invalid_utf8(text).value_or(std::move(text));
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

Json vocabulary_from_lines(const std::string& text) {
  Json vocab = Json::object();
  std::istringstream stream(text);
  std::string line;
  for (int64_t number = 0; std::getline(stream, line); ++number) {
    constexpr const char* kBlank = " \t\r\v\f";
    const size_t begin = line.find_first_not_of(kBlank);
    if (begin == std::string::npos) continue;
    vocab[line.substr(begin, line.find_last_not_of(kBlank) - begin + 1)] = number;
  }
  return vocab;
}

Json merges_from_lines(const std::string& text) {
  Json merges = Json::array();
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const std::vector<std::string> words = words_of(line);
    if (words.size() >= 2 && !words[0].starts_with('#')) merges.push_back({words[0], words[1]});
  }
  return merges;
}

// What tokenizer.json would say for a vocabulary with merges (GPT-2's pipeline), or without them.
Json pipeline_of_vocabulary(Json vocab, const fs::path& merges_file) {
  if (!fs::exists(merges_file)) {
    return {{"model", {{"type", "WordLevel"}, {"vocab", std::move(vocab)}, {"unk_token", "[UNK]"}}}};
  }
  return {
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", std::move(vocab)}, {"merges", merges_from_lines(text_of(merges_file))}}}};
}

[[noreturn]] void no_tokenizer(const fs::path& folder) {
  std::vector<std::string> present;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file()) present.push_back(entry.path().filename().string());
  }
  std::ranges::sort(present);
  throw UsageError(
      fmt::format("tokenizer folder {} has no tokenizer: looked for tokenizer.json, vocab.json or vocab.txt (with "
                  "merges.txt), found "
                  "{}.",
                  folder.string(), present.empty() ? "no files" : fmt::format("{}", fmt::join(present, ", "))));
}

}  // namespace

Pipeline load_pipeline(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    throw UsageError(
        fmt::format("tokenizer folder {} does not exist. Name a folder that holds tokenizer.json.", folder.string()));
  }
  if (const fs::path file = folder / "tokenizer.json"; fs::exists(file)) {
    return with_name_of(file, [&] { return parse_pipeline(parse_json(text_of(file))); });
  }
  if (const fs::path file = folder / "vocab.json"; fs::exists(file)) {
    return with_name_of(
        file, [&] { return parse_pipeline(pipeline_of_vocabulary(parse_json(text_of(file)), folder / "merges.txt")); });
  }
  if (const fs::path file = folder / "vocab.txt"; fs::exists(file)) {
    return with_name_of(file, [&] {
      return parse_pipeline(pipeline_of_vocabulary(vocabulary_from_lines(text_of(file)), folder / "merges.txt"));
    });
  }
  no_tokenizer(folder);
}

}  // namespace titanium::data
