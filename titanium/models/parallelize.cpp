#include "titanium/models/parallelize.h"

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/parallel/context_parallel.h"
#include "titanium/parallel/data_parallel/fully_shard.h"
#include "titanium/parallel/data_parallel/replicate.h"
#include "titanium/parallel/expert_parallel.h"
#include "titanium/parallel/placement.h"
#include "titanium/parallel/tensor_parallel.h"

namespace titanium::models {
namespace {

// Enough for the exchange of a piece to hide behind the product of another, few enough for large products.
constexpr int64_t kAsyncPieces = 4;

// Scales of float8 weights, and of what they are multiplied with, are those of the uncut tensors.
void connect_float8(Model& model, ops::RowExchange& exchange) {
  for (Parameter* parameter : model.parameters()) {
    if (!parameter->float8) continue;
    for (const Placement& placement : parameter->placements) {
      if (placement.axis != "tp") continue;
      parameter->float8->cut_dim = placement.dim;
      parameter->float8->max_over_parts = [&exchange](const Tensor& amax) { exchange.max(amax); };
    }
  }
}

std::unique_ptr<ops::RowExchange> apply_tensor_parallel(Model& model, const config::Parallelism& options,
                                                        const parallel::Mesh& mesh) {
  if (mesh.size("tp") == 1) return nullptr;
  const bool async = options.enable_async_tensor_parallel;
  auto exchange = parallel::make_row_exchange(mesh.group("tp"), async ? kAsyncPieces : 1);
  model.set_row_exchange(*exchange, !options.disable_loss_parallel);
  connect_float8(model, *exchange);
  if (async) log_info("Async TP is enabled");
  log_info("Applied Tensor Parallelism to the model");
  return exchange;
}

std::unique_ptr<ops::ContextExchange> apply_context_parallel(Model& model, const config::Parallelism& options,
                                                             const ops::SequenceShare& share,
                                                             const parallel::Mesh& mesh) {
  if (mesh.size("cp") == 1) return nullptr;
  auto exchange = parallel::make_context_exchange(mesh.group("cp"), share, parallel::rotate_method(options));
  model.set_context_exchange(*exchange);
  log_info("Applied Context Parallelism to the model");
  return exchange;
}

std::unique_ptr<ops::ExpertExchange> apply_expert_parallel(Model& model, const parallel::Mesh& mesh) {
  auto exchange = parallel::make_expert_exchange(mesh);
  model.set_expert_exchange(exchange ? *exchange : ops::all_experts_here(), parallel::cuts_experts(mesh.dims()));
  if (exchange) log_info("Applied Expert Parallelism to the model");
  return exchange;
}

// Means over the sequences and tokens of a step, on all ranks together.
void apply_router_losses(Model& model, const config::Training& options, const parallel::Mesh& mesh) {
  if (options.moe_balance_loss == 0 && options.moe_z_loss == 0) return;
  const int64_t batch =
      options.global_batch_size > 0 ? options.global_batch_size : options.local_batch_size * mesh.dims().batch();
  const auto sequences = static_cast<double>(batch), tokens = static_cast<double>(batch * options.seq_len);
  model.set_router_losses(
      parallel::router_losses(options.moe_balance_loss / sequences, options.moe_z_loss / tokens, mesh));
}

std::unique_ptr<parallel::DataParallel> apply_fully_shard(Model& model, const JobConfig& config,
                                                          const parallel::Mesh& mesh, Device device) {
  log_info("Applied {} to the model", mesh.dims().dp_replicate > 1 ? "HSDP" : "FSDP");
  if (config.training.enable_cpu_offload) log_info("Applied CPU Offloading to the model");
  const std::string& policy = config.parallelism.fsdp_reshard_after_forward;
  const bool pipeline = mesh.dims().pp > 1;
  return std::make_unique<parallel::FullyShard>(
      model.units(), mesh, std::make_unique<parallel::ShardContext>(device, model.compute_dtype),
      parallel::FullyShardOptions{
          .reshard_after_forward = policy,
          .reduce_once = pipeline || config.parallelism.fsdp_reduce_once,
          .hold_whole = pipeline && policy != "always",
          .precompute_float8_scales = config.quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp});
}

std::unique_ptr<parallel::DataParallel> apply_data_parallel(Model& model, const JobConfig& config,
                                                            const parallel::Mesh& mesh, Device device) {
  if (is_fully_sharded(config.parallelism, mesh.dims())) return apply_fully_shard(model, config, mesh, device);
  if (mesh.dims().dp_replicate == 1) return std::make_unique<parallel::DataParallel>();
  log_info("Applied DDP to the model");
  return std::make_unique<parallel::Replicate>(
      model.units(), mesh, device, parallel::ReplicateOptions{.bucket_bytes = config.parallelism.ddp_bucket_mb << 20});
}

// A stage of a pipeline may lack what the model has, but then the model has experts in other stages.
void check_experts(const Model& model, const parallel::ParallelDims& dims) {
  if (dims.ep == 1) return;
  const auto whole = model.whole();
  const auto is_expert = [](const Parameter* parameter) { return parameter->view == RankView::kSparse; };
  if (std::ranges::any_of(whole->parameters(), is_expert)) return;
  throw UsageError(fmt::format(
      "parallelism.expert_parallel_degree = {} spreads experts over ranks, but the model has none. Use 1.", dims.ep));
}

}  // namespace

bool is_fully_sharded(const config::Parallelism& options, const parallel::ParallelDims& dims) {
  return dims.fsdp() > 1 || dims.ep > 1 || options.fsdp_on_one_rank;
}

void place_parameters(Model& model, const JobConfig& config, const parallel::ParallelDims& dims, int rank) {
  const bool sharded = is_fully_sharded(config.parallelism, dims);
  if (config.training.enable_cpu_offload && !sharded) {
    throw UsageError(
        "training.enable_cpu_offload moves the shards of parallelism.data_parallel_shard_degree > 1 to host memory, "
        "but "
        "nothing is sharded. Use more shards, or parallelism.fsdp_on_one_rank = true.");
  }
  if (dims.tp > 1) model.check_tensor_parallel(dims.tp);
  check_experts(model, dims);
  if (dims.tp > 1 || dims.ep > 1) {
    parallel::cut_parameters(model.parameters(), model.tensor_parallel_plan(), dims, rank);
  }
  if (!sharded) return;
  for (Parameter* parameter : model.parameters()) {
    parallel::choose_shard_dim(*parameter, dims);
    parallel::shard(*parameter, dims, rank);
  }
}

Parallelism parallelize(Model& model, const JobConfig& config, const parallel::Mesh& mesh, Device device) {
  Parallelism parallelism;
  parallelism.exchange = apply_tensor_parallel(model, config.parallelism, mesh);
  parallelism.share = parallel::sequence_share(config.parallelism, mesh.dims(), mesh.world().rank());
  parallelism.context = apply_context_parallel(model, config.parallelism, parallelism.share, mesh);
  parallelism.experts = apply_expert_parallel(model, mesh);
  apply_router_losses(model, config.training, mesh);
  parallelism.data_parallel = apply_data_parallel(model, config, mesh, device);
  return parallelism;
}

}  // namespace titanium::models
