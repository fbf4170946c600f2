// Our kernels on the current CUDA stream; cuda/ calls them, no_cuda/ says that there are none.
#pragma once

#include "titanium/kernels/fill_normal.h"

namespace titanium::ops {

void fill_normal_on_current_stream(const kernels::FillNormalArgs& args);

}  // namespace titanium::ops
