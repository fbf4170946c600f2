// What the registry knows of Llama 4.
#pragma once

#include "titanium/models/model_spec.h"

namespace titanium::models::llama4 {

ModelSpec spec();

}  // namespace titanium::models::llama4
