// Changes to a model before it is parallelised: model.converters.
#pragma once

#include "titanium/config/job_config.h"
#include "titanium/models/model.h"
#include "titanium/parallel/parallel_dims.h"
#include "titanium/tensor/gpu_backend.h"

namespace titanium::models {

// Whether a linear layer becomes a float8 layer: both sizes are multiples of 16, its name contains none of filter_fqns,
// and with auto_filter_small_kn among these it is large enough to gain. `fqn` is that of the layer.
bool is_float8_layer(const std::string& fqn, int64_t in, int64_t out, const config::Float8Linear& options);

// Applies the converters of the configuration to a model without storage, and logs what they did. With
// quantize.linear.float8 the weights of linear layers get a recipe; nothing else changes, so initial weights and
// checkpoints are what they would be without. A head that shares the embedding's weight is not converted. With
// quantize.grouped_mm.float8 or .mx stacked weights of experts get one; UsageError where ranks cut them.
void apply_converters(Model& model, const JobConfig& config, const parallel::ParallelDims& dims);

// Throws UsageError that names the remedy if the device cannot compute what the converters ask for.
void check_converters(const JobConfig& config, Device device);
// The same for a GPU that need not be here; null is the CPU.
void check_converters(const JobConfig& config, const GpuDeviceProperties* gpu);
// The same for float8 that is not emulated. Null is the CPU.
void check_float8_device(const GpuDeviceProperties* gpu);

}  // namespace titanium::models
