// What the registry knows of Llama.
#pragma once

#include "titanium/models/model_spec.h"

namespace titanium::models::llama3 {

ModelSpec llama2_spec();
ModelSpec llama3_spec();

}  // namespace titanium::models::llama3
