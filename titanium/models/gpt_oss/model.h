// GPT-OSS: attention with sinks and, in every second layer, windows; experts with biases and a clamped activation.
#pragma once

#include "titanium/models/decoder/decoder.h"
#include "titanium/models/gpt_oss/args.h"

namespace titanium::models::gpt_oss {

class GptOss : public decoder::Decoder {
 public:
  explicit GptOss(const Args& args);
};

}  // namespace titanium::models::gpt_oss
