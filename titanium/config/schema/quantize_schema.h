// The options of converters: [quantize].
#pragma once

#include "titanium/config/schema/schema.h"

namespace titanium::config {

void declare_quantize(Schema& schema);

}  // namespace titanium::config
