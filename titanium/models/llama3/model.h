// Llama 2 and 3: decoder-only, pre-norm, SwiGLU, rotary positions, grouped-query attention.
#pragma once

#include "titanium/models/decoder/decoder.h"
#include "titanium/models/llama3/args.h"

namespace titanium::models::llama3 {

class Llama3 : public decoder::Decoder {
 public:
  explicit Llama3(const Args& args);
};

}  // namespace titanium::models::llama3
