// Llama 4: experts in each layer or in every second one, and with iRoPE chunks and layers without positions.
#pragma once

#include "titanium/models/decoder/decoder.h"
#include "titanium/models/llama4/args.h"

namespace titanium::models::llama4 {

class Llama4 : public decoder::Decoder {
 public:
  explicit Llama4(const Args& args);
};

}  // namespace titanium::models::llama4
