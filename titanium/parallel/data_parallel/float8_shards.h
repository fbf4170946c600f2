// Weights that FSDP gathers as float8: one byte per element on the way, with one scale for the whole weight.
#pragma once

#include "titanium/comm/group.h"
#include "titanium/tensor/parameter.h"

namespace titanium::parallel {

// True if the parameter is gathered as float8.
bool travels_as_float8(const Parameter& parameter, Dtype compute);

// Finds the amax of those float8 weights that do not know it since their last change: over all shards, and over the
// parts of tensor parallelism, with one reduction each for all of them. All ranks call it together.
void find_weight_amax(const std::vector<Parameter*>& parameters, comm::Group& shards, Device device);

// The shard as it travels, on `device`. Quantised once after each change; the amax is known.
const Float8Tensor& quantized_shard(Parameter& parameter, Device device);

}  // namespace titanium::parallel
