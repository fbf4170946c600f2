// DeepSeek V3, and V2 as torchtitan has it: latent attention, experts after the first layers.
#pragma once

#include "titanium/models/decoder/decoder.h"
#include "titanium/models/deepseek_v3/args.h"

namespace titanium::models::deepseek_v3 {

class DeepseekV3 : public decoder::Decoder {
 public:
  explicit DeepseekV3(const Args& args);
};

}  // namespace titanium::models::deepseek_v3
