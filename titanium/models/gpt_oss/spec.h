// What the registry knows of GPT-OSS.
#pragma once

#include "titanium/models/model_spec.h"

namespace titanium::models::gpt_oss {

ModelSpec spec();

}  // namespace titanium::models::gpt_oss
