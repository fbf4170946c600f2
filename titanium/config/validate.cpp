#include "titanium/config/validate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <numeric>
#include <set>

#include "titanium/base/error.h"
#include "titanium/config/data_sources.h"
#include "titanium/config/parameter_groups.h"
#include "titanium/config/reading/value.h"

namespace titanium::config {
namespace {

using Problems = std::vector<Problem>;

// Degrees come from the user: a product that overflows becomes the largest number, which divides nothing.
int64_t product(std::initializer_list<int64_t> factors) {
  int64_t result = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(result, factor, &result)) return std::numeric_limits<int64_t>::max();
  }
  return result;
}

std::string nearest_multiples(int64_t value, int64_t divisor) {
  const int64_t below = value / divisor * divisor;
  if (below > std::numeric_limits<int64_t>::max() - divisor) return fmt::format("{}", below);
  return below == 0 ? fmt::format("{}", divisor) : fmt::format("{} or {}", below, below + divisor);
}

void check_seq_len(const char* option, int64_t seq_len, const Parallelism& degrees, Problems& problems) {
  const int64_t tensor = degrees.tensor_parallel_degree;
  const int64_t context = degrees.context_parallel_degree;
  const int64_t divisor = product({tensor, 2, context});
  if ((tensor == 1 && context == 1) || seq_len % divisor == 0) return;
  problems.push_back(
      {{option, "parallelism.tensor_parallel_degree", "parallelism.context_parallel_degree"},
       fmt::format("{} = {} is not divisible by {} (tensor parallel {} x 2 x context parallel {}). Use {}, or change "
                   "the degrees.",
                   option, seq_len, divisor, tensor, context, nearest_multiples(seq_len, divisor))});
}

void check_batch(const JobConfig& config, std::optional<int64_t> shard_degree, Problems& problems) {
  const Training& training = config.training;
  if (training.global_batch_size == -1) return;
  const int64_t replicas = config.parallelism.data_parallel_replicate_degree;
  const int64_t shards = shard_degree.value_or(1);
  const int64_t unit = product({training.local_batch_size, replicas, shards});
  if (training.global_batch_size % unit == 0) return;
  problems.push_back(
      {{"training.global_batch_size", "training.local_batch_size", "parallelism.data_parallel_replicate_degree",
        "parallelism.data_parallel_shard_degree"},
       fmt::format(
           "training.global_batch_size = {} is not divisible by {} (local batch size {} x data parallel {}). Use "
           "{}, or change training.local_batch_size.",
           training.global_batch_size, unit, training.local_batch_size, product({replicas, shards}),
           nearest_multiples(training.global_batch_size, unit))});
}

// The number of ranks that share the parameters, where it can be known.
std::optional<int64_t> shard_degree(const Parallelism& degrees, std::optional<int64_t> world_size) {
  if (degrees.data_parallel_shard_degree != -1) return degrees.data_parallel_shard_degree;
  if (!world_size) return std::nullopt;
  return std::max<int64_t>(
      1, *world_size / product({degrees.data_parallel_replicate_degree, degrees.context_parallel_degree,
                                degrees.tensor_parallel_degree, degrees.pipeline_parallel_degree}));
}

void check_world(const Parallelism& degrees, int64_t world_size, int64_t shards, Problems& problems) {
  const int64_t ranks = product({degrees.data_parallel_replicate_degree, shards, degrees.context_parallel_degree,
                                 degrees.tensor_parallel_degree, degrees.pipeline_parallel_degree});
  if (ranks == world_size) return;
  problems.push_back(
      {{"parallelism.data_parallel_shard_degree"},
       fmt::format("the degrees ask for {} ranks (replicate {} x shard {} x context {} x tensor {} x "
                   "pipeline {}), but the run has {}. Change the number of ranks or the degrees.",
                   ranks, degrees.data_parallel_replicate_degree, shards, degrees.context_parallel_degree,
                   degrees.tensor_parallel_degree, degrees.pipeline_parallel_degree, world_size)});
}

void check_experts(const Parallelism& degrees, std::optional<int64_t> shards, Problems& problems) {
  const int64_t experts = degrees.expert_parallel_degree;
  const int64_t expert_tensor = degrees.expert_tensor_parallel_degree;
  const int64_t tensor = degrees.tensor_parallel_degree;
  if (experts == 1) return;
  if (expert_tensor != 1 && expert_tensor != tensor) {
    problems.push_back({{"parallelism.expert_tensor_parallel_degree", "parallelism.tensor_parallel_degree",
                         "parallelism.expert_parallel_degree"},
                        fmt::format("parallelism.expert_tensor_parallel_degree = {} must be 1 or the tensor-parallel "
                                    "degree, {}, with expert parallelism.",
                                    expert_tensor, tensor)});
    return;
  }
  if (!shards) return;
  const int64_t ranks = product({*shards, degrees.context_parallel_degree, expert_tensor == 1 ? tensor : 1});
  if (ranks % experts == 0) return;
  problems.push_back({{"parallelism.expert_parallel_degree", "parallelism.data_parallel_shard_degree"},
                      fmt::format("parallelism.expert_parallel_degree = {} must divide {} (shard {} x context {}{}).",
                                  experts, ranks, *shards, degrees.context_parallel_degree,
                                  expert_tensor == 1 ? fmt::format(" x tensor {}", tensor) : "")});
}

void check_pipeline(const JobConfig& config, Problems& problems) {
  const int64_t micro = config.parallelism.pipeline_parallel_microbatch_size;
  const int64_t local = config.training.local_batch_size;
  if (config.parallelism.pipeline_parallel_degree == 1 || local % micro == 0) return;
  problems.push_back({{"parallelism.pipeline_parallel_microbatch_size", "training.local_batch_size",
                       "parallelism.pipeline_parallel_degree"},
                      fmt::format("parallelism.pipeline_parallel_microbatch_size = {} must divide "
                                  "training.local_batch_size = {}.",
                                  micro, local)});
}

void check_loading(const Checkpoint& checkpoint, Problems& problems) {
  static const std::vector<std::string> kStates = {"model", "optimizer", "lr_scheduler", "dataloader", "train_state"};
  for (const std::string& name : checkpoint.exclude_from_loading) {
    if (std::ranges::find(kStates, name) != kStates.end()) continue;
    problems.push_back({{"checkpoint.exclude_from_loading"},
                        fmt::format("checkpoint.exclude_from_loading names \"{}\", which no checkpoint has. Known: {}.",
                                    name, fmt::join(kStates, ", "))});
  }
  if (checkpoint.initial_load_in_hf && !checkpoint.initial_load_model_only) {
    problems.push_back(
        {{"checkpoint.initial_load_in_hf", "checkpoint.initial_load_model_only"},
         "checkpoint.initial_load_in_hf needs checkpoint.initial_load_model_only = true: the Hugging Face "
         "layout holds only a model."});
  }
  if (checkpoint.initial_load_in_hf_quantized && !checkpoint.initial_load_in_hf) {
    problems.push_back({{"checkpoint.initial_load_in_hf_quantized", "checkpoint.initial_load_in_hf"},
                        "checkpoint.initial_load_in_hf_quantized needs checkpoint.initial_load_in_hf = true."});
  }
}

void check_saving(const JobConfig& config, Problems& problems) {
  const Checkpoint& checkpoint = config.checkpoint;
  if (checkpoint.keep_latest_k == 1) {
    problems.push_back({{"checkpoint.keep_latest_k"},
                        "checkpoint.keep_latest_k = 1 would remove the only whole checkpoint while the next one is "
                        "written. Use 2 or more, or 0 to keep all."});
  }
  if (checkpoint.last_save_in_hf && !checkpoint.last_save_model_only) {
    problems.push_back({{"checkpoint.last_save_in_hf", "checkpoint.last_save_model_only"},
                        "checkpoint.last_save_in_hf needs checkpoint.last_save_model_only = true: the Hugging Face "
                        "layout holds only a model."});
  }
  if (checkpoint.enable && config.comm.mode == "fake_backend") {
    problems.push_back({{"checkpoint.enable", "comm.mode"},
                        "checkpoint.enable = true needs ranks that exist, and those of comm.mode = \"fake_backend\" do "
                        "not. Switch one of them off."});
  }
  if (checkpoint.create_seed_checkpoint && !checkpoint.enable) {
    problems.push_back({{"checkpoint.create_seed_checkpoint", "checkpoint.enable"},
                        "checkpoint.create_seed_checkpoint needs checkpoint.enable = true."});
  }
}

void check_recomputation(const ActivationCheckpoint& recompute, Problems& problems) {
  const std::string& choice = recompute.selective_ac_option;
  const bool is_number =
      !choice.empty() && choice.size() < 10 && choice.find_first_not_of("0123456789") == std::string::npos;
  if (choice == "op" || is_number) return;
  problems.push_back({{"activation_checkpoint.selective_ac_option"},
                      fmt::format("activation_checkpoint.selective_ac_option = {} must be \"op\" or a number such as "
                                  "\"2\".",
                                  to_short_text(choice))});
}

void check_early_step(const JobConfig& config, std::optional<int64_t> shards, Problems& problems) {
  if (!config.optimizer.early_step_in_backward) return;
  if (config.training.max_norm > 0) {
    problems.push_back(
        {{"optimizer.early_step_in_backward", "training.max_norm"},
         fmt::format("optimizer.early_step_in_backward updates before the norm of all gradients is known, "
                     "so it cannot clip them to training.max_norm = {}. Set training.max_norm = -1.",
                     config.training.max_norm)});
  }
  const Training& training = config.training;
  if (!shards) return;
  const int64_t at_once =
      product({training.local_batch_size, config.parallelism.data_parallel_replicate_degree, *shards});
  if (training.global_batch_size > at_once) {
    problems.push_back(
        {{"optimizer.early_step_in_backward", "training.global_batch_size"},
         fmt::format("optimizer.early_step_in_backward needs one micro-batch per step, and "
                     "training.global_batch_size = {} is more than the {} samples that all ranks take at "
                     "once (training.local_batch_size = {}). Make them equal.",
                     training.global_batch_size, at_once, training.local_batch_size)});
  }
}

void check_parameter_groups(const Optimizer& optimizer, Problems& problems) {
  try {
    parameter_groups(optimizer);
  } catch (const UsageError& error) {
    problems.push_back({{"optimizer.param_groups"}, error.what()});
  }
}

void check_sources(const JobConfig& config, Problems& problems) {
  try {
    const std::vector<DataSource> sources = data_sources(config.training.sources, "training.sources");
    double total = sources.empty() ? 1 : 0;
    for (const DataSource& source : sources) {
      const bool weighted = source.weight || !source.weight_schedule.empty();
      if (weighted && config.training.source_temperature)
        throw UsageError(
            fmt::format("training.sources: {} has a weight, and training.source_temperature weighs sources by their "
                        "sizes. Remove one of the two.",
                        to_short_text(source.name)));
      if (!weighted && !config.training.source_temperature)
        throw UsageError(
            fmt::format("training.sources: {} has no weight. Give it one, or set "
                        "training.source_temperature to weigh sources by their sizes.",
                        to_short_text(source.name)));
      total += weighted ? source.weight.value_or(1) : 1;
    }
    if (!(total > 0)) throw UsageError("training.sources: all weights are 0. Give at least one source a weight.");
  } catch (const UsageError& error) {
    problems.push_back({{"training.sources"}, error.what()});
  }
  try {
    data_sources(config.validation.sources, "validation.sources");
  } catch (const UsageError& error) {
    problems.push_back({{"validation.sources"}, error.what()});
  }
}

void check_rounding(const JobConfig& config, Problems& problems) {
  if (!config.optimizer.bf16_stochastic_rounding) return;
  if (config.optimizer.name == "Muon") {
    problems.push_back({{"optimizer.bf16_stochastic_rounding", "optimizer.name"},
                        "optimizer.bf16_stochastic_rounding is for updates of Adam and AdamW, and optimizer.name = "
                        "\"Muon\" rounds to nearest. Leave the rounding out, or use training.dtype = \"float32\"."});
  }
  if (config.training.dtype == "bfloat16") return;
  problems.push_back({{"optimizer.bf16_stochastic_rounding", "training.dtype"},
                      fmt::format("optimizer.bf16_stochastic_rounding has nothing to round with training.dtype = {}. "
                                  "Set training.dtype = \"bfloat16\", or leave the rounding out.",
                                  to_short_text(config.training.dtype))});
}

void check_quantization(const JobConfig& config, Problems& problems) {
  const Float8Linear& float8 = config.quantize.linear.float8;
  if (float8.recipe_name && float8.enable_fsdp_float8_all_gather) {
    problems.push_back({{"quantize.linear.float8.enable_fsdp_float8_all_gather", "quantize.linear.float8.recipe_name"},
                        fmt::format("quantize.linear.float8.enable_fsdp_float8_all_gather does not go together with "
                                    "quantize.linear.float8.recipe_name = \"{}\". Leave out one of the two.",
                                    *float8.recipe_name)});
  }
  const bool filters_small = std::ranges::count(float8.filter_fqns, std::string_view("auto_filter_small_kn")) > 0;
  if (filters_small && float8.recipe_name == "rowwise_with_gw_hp") {
    problems.push_back({{"quantize.linear.float8.filter_fqns", "quantize.linear.float8.recipe_name"},
                        "quantize.linear.float8.filter_fqns: auto_filter_small_kn knows no sizes for recipe_name = "
                        "\"rowwise_with_gw_hp\". Name the layers to leave alone, or use another recipe."});
  }
  std::set<std::string> kinds;
  for (const std::string& converter : config.model.converters) kinds.insert(converter.substr(converter.rfind('.') + 1));
  if (kinds.size() > 1) {
    problems.push_back({{"model.converters"},
                        fmt::format("model.converters = {} mixes {}. Use converters of one kind.",
                                    to_short_text(config.model.converters), fmt::join(kinds, " and "))});
  }
}

void check_profiling(const Profiling& profiling, Problems& problems) {
  if (!profiling.enable_profiling) return;
  // In floating point, because the sum of two large integers may overflow.
  const double needed = static_cast<double>(profiling.profiler_active) + static_cast<double>(profiling.profiler_warmup);
  if (static_cast<double>(profiling.profile_freq) >= needed) return;
  problems.push_back({{"profiling.profile_freq", "profiling.profiler_active", "profiling.profiler_warmup"},
                      fmt::format("profiling.profile_freq = {} is less than profiling.profiler_active + "
                                  "profiling.profiler_warmup = {}. Use {} or more.",
                                  profiling.profile_freq, needed, needed)});
}

void check_streams(const char* option, int64_t streams, int64_t readers, Problems& problems) {
  if (streams % readers == 0) return;
  problems.push_back({{option, "parallelism.data_parallel_replicate_degree", "parallelism.data_parallel_shard_degree"},
                      fmt::format("{} = {} cannot be shared evenly by {} data-parallel ranks. Use {}.", option, streams,
                                  readers, nearest_multiples(streams, readers))});
}

}  // namespace

int64_t fewest_ranks(const Parallelism& degrees) {
  const int64_t tensor = degrees.tensor_parallel_degree, experts = degrees.expert_parallel_degree;
  // Experts are spread over the ranks of sharding, context and, unless they are cut, tensor parallelism.
  const int64_t others =
      product({degrees.context_parallel_degree, degrees.expert_tensor_parallel_degree == 1 ? tensor : 1});
  const int64_t shards =
      degrees.data_parallel_shard_degree > 0 ? degrees.data_parallel_shard_degree : experts / std::gcd(experts, others);
  return product({degrees.data_parallel_replicate_degree, shards, degrees.context_parallel_degree, tensor,
                  degrees.pipeline_parallel_degree});
}

std::vector<Problem> validate(const JobConfig& config, std::optional<int64_t> world_size) {
  const Parallelism& degrees = config.parallelism;
  const auto shards = shard_degree(degrees, world_size);
  Problems problems;
  check_profiling(config.profiling, problems);
  check_early_step(config, shards, problems);
  check_parameter_groups(config.optimizer, problems);
  check_sources(config, problems);
  check_rounding(config, problems);
  check_quantization(config, problems);
  check_seq_len("training.seq_len", config.training.seq_len, degrees, problems);
  check_batch(config, shards, problems);
  const int64_t readers = product({degrees.data_parallel_replicate_degree, shards.value_or(1)});
  check_streams("training.data_streams", config.training.data_streams, readers, problems);
  if (world_size) check_world(degrees, *world_size, *shards, problems);
  check_experts(degrees, shards, problems);
  check_pipeline(config, problems);
  check_loading(config.checkpoint, problems);
  check_saving(config, problems);
  check_recomputation(config.activation_checkpoint, problems);
  if (config.validation.enable) {
    check_seq_len("validation.seq_len", config.validation.seq_len, degrees, problems);
    check_streams("validation.data_streams", config.validation.data_streams, readers, problems);
  }
  return problems;
}

}  // namespace titanium::config
