// Attention sinks: a number per head that takes part in the softmax of every query as a key without a value.
#pragma once

#include "titanium/ops/attention/attend.h"
#include "titanium/tensor/parameter.h"

namespace titanium::ops {

// Note [A sink joins at the end]
// A sink s adds exp(s) to the sum of exponentials of a query and nothing to its output: out' = out * sigmoid(lse - s)
// and lse' = log(exp(lse) + exp(s)). So no library has to know of it: it is applied once to the result over all keys,
// and the backward over any of the keys takes out' and lse' as it would take those of more keys.

// The result with sinks [H], in place where dtypes allow.
Attended add_sinks(const Attended& attended, const Parameter& sinks);

// Adds the gradient of the sinks: -sum of exp(s - lse') <grad, out'> over the queries of a head. `attended` has the
// sinks already.
void accumulate_sink_grad(const Tensor& grad_BSHV, const Attended& attended, Parameter& sinks);

}  // namespace titanium::ops
