// Flux, for the registry.
#pragma once

#include "titanium/models/model_spec.h"

namespace titanium::models::flux {

ModelSpec spec();

}  // namespace titanium::models::flux
