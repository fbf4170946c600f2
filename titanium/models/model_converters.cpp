#include "titanium/models/model_converters.h"

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/models/parallelize.h"
#include "titanium/parallel/expert_parallel.h"

namespace titanium::models {
namespace {

constexpr const char* kFloat8 = "quantize.linear.float8";
constexpr const char* kExpertsFloat8 = "quantize.grouped_mm.float8";
constexpr const char* kExpertsMx = "quantize.grouped_mm.mx";
constexpr std::string_view kAutoFilter = "auto_filter_small_kn";
constexpr int kFirstCapability = 89;         // Ada; Hopper is 90
constexpr int kFirstGroupedCapability = 90;  // of libtorch's grouped products of float8
constexpr int64_t kMultiple = 16;            // of both sizes: what the tensor cores' products of float8 need

bool has_converter(const JobConfig& config, const char* name) {
  return std::ranges::count(config.model.converters, name) > 0;
}
bool has_float8(const JobConfig& config) { return has_converter(config, kFloat8); }

Float8Recipe recipe_of(const config::Float8Linear& options) {
  const std::string name = options.recipe_name.value_or("tensorwise");
  if (name == "tensorwise") return Float8Recipe::kTensorwise;
  return name == "rowwise" ? Float8Recipe::kRowwise : Float8Recipe::kRowwiseWithGwHp;
}

// Where quantising costs more than the product gains, as torchao measured it on an H100.
bool is_too_small(int64_t in, int64_t out, Float8Recipe recipe) {
  if (recipe == Float8Recipe::kTensorwise) return in <= 4096 && out <= 1024;
  return out <= 2048 || in <= 1024 || (out <= 4096 && in <= 2048);
}

const char* yes_no(bool value) { return value ? "True" : "False"; }

void log_recipe(const config::Float8Linear& options, bool is_gathered) {
  if (options.recipe_name) {
    log_info("Float8 training active with recipe {}", *options.recipe_name);
  } else {
    log_info("Float8 tensorwise scaled training active");
  }
  if (std::ranges::count(options.filter_fqns, kAutoFilter) > 0) {
    log_info("{} leaves linear layers alone that are too small to gain from float8", kAutoFilter);
  }
  if (options.precompute_float8_dynamic_scale_for_fsdp && !is_gathered) {
    log_warning(
        "{0}.precompute_float8_dynamic_scale_for_fsdp has no effect: no weights are gathered as float8. It "
        "needs {0}.enable_fsdp_float8_all_gather and data_parallel_shard_degree > 1.",
        kFloat8);
  }
}

// Whether a weight is used several times in a step, so that its copies in float8 are worth their memory.
bool has_micro_batches(const JobConfig& config, const parallel::ParallelDims& dims) {
  const config::Training& training = config.training;
  return dims.pp > 1 || training.global_batch_size > training.local_batch_size * dims.batch();
}

void convert_to_float8(Model& model, const JobConfig& config, const parallel::ParallelDims& dims, bool is_gathered) {
  const config::Float8Linear& options = config.quantize.linear.float8;
  log_recipe(options, is_gathered);
  int64_t converted = 0, layers = 0;
  for (Parameter* weight : model.parameters()) {
    if (!weight->is_linear_weight) continue;
    ++layers;
    const std::string fqn = weight->fqn.substr(0, weight->fqn.rfind('.'));
    if (!is_float8_layer(fqn, weight->global_shape[1], weight->global_shape[0], options)) continue;
    ++converted;
    weight->float8 = std::make_unique<Float8Weight>();
    weight->float8->recipe = recipe_of(options);
    weight->float8->is_gathered = is_gathered;
    weight->float8->emulate = options.emulate;
    weight->float8->keeps_copies = has_micro_batches(config, dims);
  }
  log_info("Swapped to Float8Linear layers with enable_fsdp_float8_all_gather={} ({} of {} linear layers{})",
           yes_no(is_gathered), converted, layers, options.emulate ? ", emulated" : "");
  if (converted == 0) {
    log_warning(
        "{0} changes nothing: each of the {1} linear layers is left out by {0}.filter_fqns, or has a size that is no "
        "multiple of {2}, or shares its weight with the embedding.",
        kFloat8, layers, kMultiple);
  }
}

// A conversion of the stacked weights whose names contain one of `fqns`.
struct ExpertConversion {
  const char* converter;
  Float8Recipe recipe;
  const config::Names& fqns;
  bool emulate;
};

void convert_experts(Model& model, const ExpertConversion& conversion, const parallel::ParallelDims& dims) {
  int64_t converted = 0, layers = 0;
  for (Parameter* weight : model.parameters()) {
    const Shape& shape = weight->global_shape;
    if (weight->view != RankView::kSparse || shape.size() != 3) continue;
    ++layers;
    const auto is_named = [&](const std::string& part) { return weight->fqn.find(part) != std::string::npos; };
    if (std::ranges::none_of(conversion.fqns, is_named) || shape[1] % kMultiple != 0 || shape[2] % kMultiple != 0) {
      continue;
    }
    if (parallel::cuts_experts(dims)) {
      throw UsageError(
          fmt::format("model.converters has {}, which quantises whole experts, but parallelism.tensor_parallel_degree "
                      "= {} cuts them. Use parallelism.expert_parallel_degree > 1 and expert_tensor_parallel_degree = "
                      "1, or leave the converter out.",
                      conversion.converter, dims.tp));
    }
    ++converted;
    weight->float8 = std::make_unique<Float8Weight>();
    weight->float8->recipe = conversion.recipe;
    weight->float8->emulate = conversion.emulate;
    weight->float8->keeps_copies = false;
  }
  log_info("Converted experts to {} ({} of {} stacked weights{})", conversion.converter, converted, layers,
           conversion.emulate ? ", emulated" : "");
  if (converted == 0) {
    log_warning(
        "{0} changes nothing: no name of the {1} stacked weights contains one of {0}.fqns, or their sizes are no "
        "multiples of {2}.",
        conversion.converter, layers, kMultiple);
  }
}

// Products of experts that are not emulated. Null is the CPU.
void check_experts_device(const GpuDeviceProperties* gpu) {
  if (gpu != nullptr && gpu->compute_capability >= kFirstGroupedCapability) return;
  throw UsageError(
      fmt::format("model.converters has {0}, but {1} has no grouped products of float8 (a GPU of compute capability "
                  "9.0 or more is needed). Set {0}.emulate = true to round to float8 and multiply in float32.",
                  kExpertsFloat8, gpu == nullptr ? "the CPU" : gpu->name));
}

}  // namespace

bool is_float8_layer(const std::string& fqn, int64_t in, int64_t out, const config::Float8Linear& options) {
  if (in % kMultiple != 0 || out % kMultiple != 0) return false;
  return std::ranges::none_of(options.filter_fqns, [&](const std::string& filter) {
    return filter == kAutoFilter ? is_too_small(in, out, recipe_of(options)) : fqn.find(filter) != std::string::npos;
  });
}

void apply_converters(Model& model, const JobConfig& config, const parallel::ParallelDims& dims) {
  const config::Float8Linear& options = config.quantize.linear.float8;
  const bool is_gathered = options.enable_fsdp_float8_all_gather && is_fully_sharded(config.parallelism, dims);
  if (has_float8(config)) convert_to_float8(model, config, dims, is_gathered);
  const config::QuantizedGroupedMm& experts = config.quantize.grouped_mm;
  if (has_converter(config, kExpertsFloat8)) {
    convert_experts(model, {kExpertsFloat8, Float8Recipe::kRowwise, experts.float8.fqns, experts.float8.emulate}, dims);
  }
  if (has_converter(config, kExpertsMx)) {
    convert_experts(model, {kExpertsMx, Float8Recipe::kMx, experts.mx.fqns, experts.mx.emulate}, dims);
  }
}

void check_float8_device(const GpuDeviceProperties* gpu) {
  if (gpu == nullptr) {
    throw UsageError(
        fmt::format("model.converters has {0}, but the CPU does not compute in float8. Set {0}.emulate = "
                    "true to round to float8 and multiply in float32, or run on a GPU.",
                    kFloat8));
  }
  if (gpu->compute_capability < kFirstCapability) {
    throw UsageError(
        fmt::format("model.converters has {0}, but {1} does not compute in float8 (compute capability "
                    "{2}.{3}; 8.9 or more is needed). Set {0}.emulate = true to round to float8 and "
                    "multiply in float32.",
                    kFloat8, gpu->name, gpu->compute_capability / 10, gpu->compute_capability % 10));
  }
}

void check_converters(const JobConfig& config, const GpuDeviceProperties* gpu) {
  const bool computes = !config.checkpoint.create_seed_checkpoint;
  if (!computes) return;
  if (has_float8(config) && !config.quantize.linear.float8.emulate) check_float8_device(gpu);
  const config::QuantizedGroupedMm& experts = config.quantize.grouped_mm;
  if (has_converter(config, kExpertsFloat8) && !experts.float8.emulate) check_experts_device(gpu);
  if (has_converter(config, kExpertsMx) && !experts.mx.emulate) {
    throw UsageError(
        fmt::format("model.converters has {0}, but {1} has no products of MXFP8 that this program can use. Set "
                    "{0}.emulate = true to round to MXFP8 and multiply in float32.",
                    kExpertsMx, gpu == nullptr ? "the CPU" : gpu->name));
  }
}

void check_converters(const JobConfig& config, Device device) {
  if (device.is_cpu()) return check_converters(config, nullptr);
  const GpuDeviceProperties gpu = gpu_device_properties(device.index());
  check_converters(config, &gpu);
}

}  // namespace titanium::models
