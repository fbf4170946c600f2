// The sections that only the Flux extension has.
#pragma once

#include "titanium/config/schema/schema.h"

namespace titanium::config {

void declare_flux(Schema& schema);

}  // namespace titanium::config
