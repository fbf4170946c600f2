// The "normalizer" of a tokenizer: what is done to a text before it is cut into words.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "titanium/data/tokenizer/files/json_fields.h"

namespace titanium::data {

// One change of a text, which is valid UTF-8 before and after. Immutable and thread-safe.
class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  virtual std::string apply(std::string_view text) const = 0;
};

// NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip, Sequences of them, nothing, and SentencePiece, which
// is not part of tokenizer.json: the normaliser of a SentencePiece model (sentencepiece_normalizer.h).
class Normalizer {
 public:
  // Throws Error for any other type.
  static Normalizer from_json(const Json& json);

  bool does_nothing() const { return steps_.empty(); }
  std::string apply(std::string_view text) const;

 private:
  void append(const Json& json);

  std::vector<std::shared_ptr<const NormalizerStep>> steps_;
};

}  // namespace titanium::data
