// The "normalizer" and "pre_tokenizer" of tokenizer.json: from text to words.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "titanium/data/tokenizer/json_fields.h"
#include "titanium/data/tokenizer/regex.h"

namespace titanium::data {

// NFC, a Sequence of it, or nothing.
class Normalizer {
 public:
  // Throws Error for any other type.
  static Normalizer from_json(const Json& json);

  bool does_nothing() const { return !nfc_; }
  std::string apply(std::string_view text) const;

 private:
  bool nfc_ = false;
};

class WordSink {
 public:
  virtual ~WordSink() = default;
  // `word` is not empty and lives only during the call.
  virtual void word(std::string_view word) = 0;
};

// Split, Digits, ByteLevel and Sequences of them. ByteLevel must come last: the words are then bytes for a byte-level
// model, and are not spelled in the byte alphabet.
class PreTokenizer {
 public:
  // Null: the whole text is one word. Throws Error for any other type.
  static PreTokenizer from_json(const Json& json);

  bool byte_level() const { return byte_level_; }

  // Hands the words of `text` (valid UTF-8) to `sink`, in order. Thread-safe.
  void split(std::string_view text, WordSink& sink) const { run(0, text, sink); }

 private:
  enum class Behavior { kIsolated, kRemoved, kContiguous, kMergedWithPrevious, kMergedWithNext };

  struct Stage {
    std::optional<Regex> regex = std::nullopt;
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;
    bool prefix_space = false;
  };

  struct Segment {
    size_t begin;
    size_t end;
    bool is_match;
  };

  void append(const Json& json);
  static Behavior parse_behavior(const std::string& name);
  static Stage parse_split(const Json& json);

  void run(size_t stage, std::string_view text, WordSink& sink) const;
  template <typename Visit>
  static void for_each_segment(const Stage& stage, std::string_view text, const Visit& visit);
  static std::vector<Segment> merge_segments(const Stage& stage, std::string_view text);

  std::vector<Stage> stages_;
  bool byte_level_ = false;
};

}  // namespace titanium::data
