// What the registry knows of Qwen 3.
#pragma once

#include "titanium/models/model_spec.h"

namespace titanium::models::qwen3 {

ModelSpec spec();

}  // namespace titanium::models::qwen3
