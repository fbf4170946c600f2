#include <algorithm>
#include <sstream>

#include "titanium/base/files/file.h"
#include "titanium/base/text/json.h"
#include "titanium/data/fetchable.h"
#include "titanium/data/tokenizer/files/parts_cache.h"
#include "titanium/data/tokenizer/pipeline.h"
#include "titanium/data/tokenizer/text/unicode.h"

namespace titanium::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kClipBegin = "<|startoftext|>";
constexpr const char* kClipEnd = "<|endoftext|>";
constexpr const char* kClipWords = R"('s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)";

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
    if (words.size() >= 2 && !line.starts_with("#version")) merges.push_back({words[0], words[1]});
  }
  return merges;
}

// CLIP's vocabulary spells the ends of words and knows where a caption begins.
bool is_clip(const Json& vocab) {
  return vocab.is_object() && vocab.contains(kClipBegin) && vocab.contains(kClipEnd) && vocab.contains("a</w>");
}

// What tokenizer.json says for CLIP.
Json json_of_clip(Json vocab, const std::string& merges) {
  const auto special = [](const char* token) {
    return Json{{"content", token}, {"special", true}, {"normalized", false}};
  };
  Json json = {
      {"bos_token", kClipBegin},
      {"eos_token", kClipEnd},
      {"added_tokens", Json::array({special(kClipBegin), special(kClipEnd)})},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers", Json::array({{{"type", "NFC"}},
                                     {{"type", "Replace"}, {"pattern", {{"Regex", "\\s+"}}}, {"content", " "}},
                                     {{"type", "Lowercase"}}})}}},
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers",
         Json::array(
             {{{"type", "Split"}, {"pattern", {{"Regex", kClipWords}}}, {"behavior", "Removed"}, {"invert", true}},
              {{"type", "ByteLevel"}, {"add_prefix_space", false}}})}}},
      {"post_processor",
       {{"type", "RobertaProcessing"},
        {"cls", {kClipBegin, vocab.at(kClipBegin)}},
        {"sep", {kClipEnd, vocab.at(kClipEnd)}}}},
      {"decoder", {{"type", "ByteLevel"}}}};
  json["model"] = {{"type", "BPE"},
                   {"unk_token", kClipEnd},
                   {"end_of_word_suffix", "</w>"},
                   {"vocab", std::move(vocab)},
                   {"merges", merges_from_lines(merges)}};
  return json;
}

// What tokenizer.json would say for a vocabulary with merges (CLIP's or GPT-2's pipeline), or without them.
Json json_of_vocabulary(Json vocab, const std::string* merges) {
  if (merges != nullptr && is_clip(vocab)) return json_of_clip(std::move(vocab), *merges);
  if (merges == nullptr) {
    return {{"model", {{"type", "WordLevel"}, {"vocab", std::move(vocab)}, {"unk_token", "[UNK]"}}}};
  }
  return {{"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", std::move(vocab)}, {"merges", merges_from_lines(*merges)}}}};
}

[[noreturn]] void no_tokenizer(const fs::path& folder) {
  std::vector<std::string> present;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file()) present.push_back(entry.path().filename().string());
  }
  std::ranges::sort(present);
  throw UsageError(fmt::format(
      "tokenizer folder {} has no tokenizer: looked for tokenizer.json, tekken.json, "
      "tokenizer.model, spiece.model, a file *.tiktoken, vocab.json or vocab.txt (with merges.txt), found {}.",
      folder.string(), present.empty() ? "no files" : fmt::format("{}", fmt::join(present, ", "))));
}

using Contents = std::vector<std::string>;
using ReadContents = TokenizerParts (*)(const Contents&);

// A kind of tokenizer: what its first file is called, which other file may come with it, and how it is read.
struct Kind {
  const char* file;    // a name, or an ending that begins with '*'
  const char* beside;  // null: nothing
  ReadContents read;
};

std::string valid(const std::string& text) { return replace_invalid_utf8(text).value_or(text); }

TokenizerParts read_json(const Contents& contents) { return parts_of_json(parse_json(valid(contents[0]))); }
TokenizerParts read_tekken(const Contents& contents) { return parts_of_tekken(parse_json(valid(contents[0]))); }

// Both are called tokenizer.model. A SentencePiece model begins with the key of its first piece, which is a line break.
TokenizerParts read_model(const Contents& contents) {
  return contents[0].starts_with('\n') ? parts_of_sentencepiece(contents[0]) : parts_of_ranks(contents[0]);
}

TokenizerParts read_vocabulary(Json vocab, const Contents& contents) {
  const std::string merges = contents.size() > 1 ? valid(contents[1]) : "";
  return parts_of_json(json_of_vocabulary(std::move(vocab), contents.size() > 1 ? &merges : nullptr));
}
TokenizerParts read_vocab_json(const Contents& contents) {
  return read_vocabulary(parse_json(valid(contents[0])), contents);
}
TokenizerParts read_vocab_txt(const Contents& contents) {
  return read_vocabulary(vocabulary_from_lines(valid(contents[0])), contents);
}

// In the order of preference.
constexpr Kind kKinds[] = {
    {"tokenizer.json", nullptr, read_json},      {"tekken.json", nullptr, read_tekken},
    {"tokenizer.model", nullptr, read_model},    {"spiece.model", nullptr, read_model},
    {"*.tiktoken", nullptr, read_model},         {"vocab.json", "merges.txt", read_vocab_json},
    {"vocab.txt", "merges.txt", read_vocab_txt},
};

bool is_called(const fs::path& file, std::string_view name) {
  const std::string own = file.filename().string();
  return name.starts_with('*') ? own.ends_with(name.substr(1)) : own == name;
}

std::optional<fs::path> find_file(const fs::path& folder, std::string_view name) {
  if (!name.starts_with('*')) return fs::exists(folder / name) ? std::optional(folder / name) : std::nullopt;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (is_called(entry.path(), name)) found.push_back(entry.path());
  }
  return found.empty() ? std::nullopt : std::optional(std::ranges::min(found));
}

// A tokenizer.json that cuts and fills up no texts.
std::string without_lengths(const std::string& content) {
  Json json = parse_json(valid(content));
  for (const char* key : {"truncation", "padding"})
    if (json.is_object() && json.contains(key)) json[key] = nullptr;
  return json.dump();
}

LoadedPipeline load_kind(const Kind& kind, const fs::path& file, bool ignore_lengths) {
  return with_name_of(file, [&] {
    Contents contents = {read_file(file, "tokenizer file")};
    if (ignore_lengths && kind.read == read_json) contents[0] = without_lengths(contents[0]);
    if (kind.beside != nullptr && fs::exists(file.parent_path() / kind.beside)) {
      contents.push_back(read_file(file.parent_path() / kind.beside, "tokenizer file"));
    }
    TokenizerParts parts = cached_parts(kind.file, contents, [&] { return kind.read(contents); });
    const Json& bos = field_or_null(parts.json, "bos_token");
    const Json& eos = field_or_null(parts.json, "eos_token");
    const auto text = [](const Json& json) {
      return json.is_string() ? std::optional(json.get<std::string>()) : std::nullopt;
    };
    LoadedPipeline loaded{.pipeline = build_pipeline(parts), .bos = text(bos), .eos = text(eos)};
    return loaded;
  });
}

// A file that a path names directly: by its name, else a model or ranks, whatever they are called.
LoadedPipeline load_file(const fs::path& file, bool ignore_lengths) {
  for (const Kind& kind : kKinds) {
    if (is_called(file, kind.file)) return load_kind(kind, file, ignore_lengths);
  }
  const std::string name = file.filename().string();
  if (name.starts_with("tekken") && name.ends_with(".json")) return load_kind(kKinds[1], file, ignore_lengths);
  return load_kind(name.ends_with(".json") ? kKinds[0] : kKinds[2], file, ignore_lengths);
}

}  // namespace

LoadedPipeline load_pipeline(const fs::path& path, bool ignore_lengths) {
  if (fs::is_regular_file(path)) return load_file(path, ignore_lengths);
  if (!fs::is_directory(path)) throw UsageError(missing_tokenizer_sentence(path));
  for (const Kind& kind : kKinds) {
    if (const auto file = find_file(path, kind.file)) return load_kind(kind, *file, ignore_lengths);
  }
  no_tokenizer(path);
}

}  // namespace titanium::data
