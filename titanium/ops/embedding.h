// Rows of a table.
#pragma once

#include "titanium/ops/row_exchange.h"
#include "titanium/tensor/parameter.h"

namespace titanium::ops {

// table[tokens] in `dtype`, [T, D] for tokens [T]. Saves the tokens. With the exchange of several ranks the table is
// cut along the vocabulary, and the result is this rank's rows, [t, D].
Tensor embedding(const Tensor& tokens_T, Parameter& table_VD, Dtype dtype, RowExchange& exchange = all_rows_here());

}  // namespace titanium::ops
