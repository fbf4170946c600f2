// The options of what a run reports: [metrics] and [log].
#pragma once

#include "titanium/config/schema/schema.h"

namespace titanium::config {

void declare_metrics(Schema& schema);
void declare_log(Schema& schema);

}  // namespace titanium::config
