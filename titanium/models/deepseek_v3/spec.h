// What the registry knows of DeepSeek.
#pragma once

#include "titanium/models/model_spec.h"

namespace titanium::models::deepseek_v3 {

ModelSpec spec();

}  // namespace titanium::models::deepseek_v3
