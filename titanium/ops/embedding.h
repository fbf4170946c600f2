// Rows of a table.
#pragma once

#include "titanium/ops/record.h"
#include "titanium/tensor/parameter.h"

namespace titanium::ops {

// table[tokens] in `dtype`, [T, D] for tokens [T]. Saves the tokens.
Tensor embedding(const Tensor& tokens_T, Parameter& table_VD, Dtype dtype);

}  // namespace titanium::ops
