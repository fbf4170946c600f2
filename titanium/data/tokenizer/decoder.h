// The "decoder" of tokenizer.json: from the strings of tokens to text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "titanium/data/tokenizer/files/json_fields.h"

namespace titanium::data {

// One change of the list of strings that are joined at the end. Immutable and thread-safe.
class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

// ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip and Sequences of them. Without any, tokens are joined with
// spaces.
class Decoder {
 public:
  // Throws Error for any other type.
  static Decoder from_json(const Json& json);

  // The text of `tokens`; bytes that are not UTF-8 become U+FFFD.
  std::string decode(std::vector<std::string> tokens) const;

 private:
  void append(const Json& json);

  std::vector<std::shared_ptr<const DecoderStep>> steps_;
  bool given_ = false;
};

}  // namespace titanium::data
