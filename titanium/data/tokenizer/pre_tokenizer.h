// The "pre_tokenizer" of tokenizer.json: from text to words.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "titanium/data/tokenizer/files/json_fields.h"
#include "titanium/data/tokenizer/text/regex.h"
#include "titanium/data/tokenizer/text/word_scanner.h"

namespace titanium::data {

class WordSink {
 public:
  virtual ~WordSink() = default;
  // `word` is not empty and lives only during the call.
  virtual void word(std::string_view word) = 0;
};

// Split, Digits, Punctuation, Whitespace, WhitespaceSplit, Metaspace, ByteLevel and Sequences of them. ByteLevel must
// come last: the words are then bytes for a byte-level model, and are not spelled in the byte alphabet.
class PreTokenizer {
 public:
  // Null: the whole text is one word. Throws Error for any other type.
  static PreTokenizer from_json(const Json& json);

  bool byte_level() const { return byte_level_; }

  // Adds a last stage that cuts before every `mark` that follows something else.
  void cut_before(std::string_view mark);

  // Whether the words are the whole text.
  bool does_nothing() const { return stages_.empty(); }

  // Hands the words of `text` (valid UTF-8) to `sink`, in order. `is_first`: the text begins a document. Thread-safe.
  void split(std::string_view text, WordSink& sink, bool is_first = true) const { run(0, text, is_first, sink); }

 private:
  enum class Behavior { kIsolated, kRemoved, kContiguous, kMergedWithPrevious, kMergedWithNext };

  // Where a mark that stands for spaces is put in front of a text.
  enum class Prepend { kAlways, kFirst, kNever };

  struct Stage {
    std::optional<Regex> regex = std::nullopt;
    std::optional<WordScanner> scanner = std::nullopt;  // instead of the regex
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;
    bool prefix_space = false;
    std::string space_mark = {};  // what replaces every space, unless empty
    Prepend prepend = Prepend::kNever;
    std::string cut_mark = {};  // what begins words, unless empty
  };

  struct Segment {
    size_t begin;
    size_t end;
    bool is_match;
  };

  void append(const Json& json);
  static Behavior parse_behavior(const std::string& name);
  static Stage parse_split(const Json& json);
  static Stage parse_metaspace(const Json& json);

  void run(size_t stage, std::string_view text, bool is_first, WordSink& sink) const;
  static void replace_spaces(const Stage& stage, bool is_first, std::string& text);
  template <typename Visit>
  static void for_each_segment(const Stage& stage, std::string_view text, const Visit& visit);
  static std::vector<Segment> merge_segments(const Stage& stage, std::string_view text);

  std::vector<Stage> stages_;
  bool byte_level_ = false;
};

}  // namespace titanium::data
