// The options of mixes, shuffles and tokens made elsewhere, as parts of the sections training and validation.
#pragma once

#include "titanium/config/schema/schema.h"

namespace titanium::config {

void declare_sources(Section<Training>& training);
void declare_validation_sources(Section<Validation>& validation);

}  // namespace titanium::config
