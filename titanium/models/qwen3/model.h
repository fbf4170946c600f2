// Qwen 3: as Llama 3, but queries and keys are normalised head by head before they are rotated, and the size of a head
// does not follow from that of the model.
#pragma once

#include "titanium/models/decoder/decoder.h"
#include "titanium/models/qwen3/args.h"

namespace titanium::models::qwen3 {

class Qwen3 : public decoder::Decoder {
 public:
  explicit Qwen3(const Args& args);
};

}  // namespace titanium::models::qwen3
