#include "titanium/ops/cross_entropy.h"

#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include "titanium/base/error.h"
#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"

namespace titanium::ops {
namespace {

static_assert(kIgnoreIndex == kernels::kIgnoredLabel);

// --- ATen ---------------------------------------------------------------------------------------------------------

// The labels of a chunk as columns of this rank's logits; the others point to column 0 and are not `here`.
struct Targets {
  Tensor column_T1;
  Tensor valid_T1;  // counts at all
  Tensor here_T1;   // counts, and its column is on this rank
};

Targets find_targets(const Tensor& labels_T, int64_t first_column, int64_t columns) {
  Targets targets;
  targets.valid_T1 = (labels_T != kIgnoreIndex).unsqueeze_(1);
  const Tensor column_T1 = (labels_T - first_column).unsqueeze_(1);
  targets.here_T1 = targets.valid_T1.logical_and(column_T1.ge(0)).logical_and_(column_T1.lt(columns));
  targets.column_T1 = column_T1.masked_fill(targets.here_T1.logical_not(), 0);
  return targets;
}

// softmax - onehot, times scale, and zero for ignored tokens; overwrites the log-probabilities.
Tensor logits_grad(Tensor& log_probabilities_TV, const Targets& targets, double scale) {
  const Tensor& grad_TV = log_probabilities_TV.exp_();
  grad_TV.scatter_(1, targets.column_T1,
                   grad_TV.gather(1, targets.column_T1).sub_(targets.here_T1.to(grad_TV.scalar_type())));
  return grad_TV.mul_(targets.valid_T1.to(grad_TV.scalar_type()).mul_(scale));
}

struct ChunkLoss {
  Tensor log_probabilities_TV;  // of this rank's columns, fp32
  Tensor sum;                   // of the log-probabilities of the targets, fp64
};

Tensor sum_of_targets(const Tensor& log_probabilities_TV, const Targets& targets) {
  const Tensor picked_T1 = log_probabilities_TV.gather(1, targets.column_T1);
  return picked_T1.masked_fill_(targets.here_T1.logical_not(), 0).sum(at::kDouble);
}

// Every rank holds the whole vocabulary, if only for this chunk.
ChunkLoss whole_rows_loss(const Tensor& logits_TV, const Tensor& labels_T, const CrossEntropyArgs& args) {
  const int64_t columns = logits_TV.size(1);
  const Tensor all_TV = at::_log_softmax(args.exchange.gather_columns(logits_TV).to(at::kFloat), 1, false);
  const Tensor sum = sum_of_targets(all_TV, find_targets(labels_T, 0, all_TV.size(1)));
  return {all_TV.size(1) == columns ? all_TV : all_TV.narrow(1, args.first_column, columns).contiguous(), sum};
}

// Only row maxima, sums of exponentials and target logits travel.
ChunkLoss loss_parallel_loss(const Tensor& logits_TV, const Targets& targets, RowExchange& exchange) {
  Tensor logits = logits_TV.to(at::kFloat);
  const Tensor largest_T1 = logits.amax({1}, /*keepdim=*/true);
  exchange.max(largest_T1);
  logits = logits.sub_(largest_T1);
  const Tensor target_T1 = logits.gather(1, targets.column_T1).masked_fill_(targets.here_T1.logical_not(), 0);
  const Tensor sums = at::stack({logits.exp().sum({1}, /*keepdim=*/true), target_T1});
  exchange.sum(sums);
  const Tensor log_sum_T1 = sums[0].log();
  const Tensor picked_T1 = (sums[1] - log_sum_T1).masked_fill_(targets.valid_T1.logical_not(), 0);
  return {logits.sub_(log_sum_T1), picked_T1.sum(at::kDouble)};
}

bool exchanges_statistics(const CrossEntropyArgs& args) { return args.loss_parallel && args.exchange.ranks() > 1; }

Tensor reference(const Tensor& logits_TV, const Tensor& labels_T, const CrossEntropyArgs& args, Tensor& loss) {
  const Targets targets = find_targets(labels_T, args.first_column, logits_TV.size(1));
  ChunkLoss part = exchanges_statistics(args) ? loss_parallel_loss(logits_TV, targets, args.exchange)
                                              : whole_rows_loss(logits_TV, labels_T, args);
  loss.sub_(part.sum, args.scale);
  if (!args.with_grad) return {};
  return logits_grad(part.log_probabilities_TV, targets, args.scale).to(logits_TV.scalar_type());
}

// --- Kernels ------------------------------------------------------------------------------------------------------

Tensor floats_beside(const Tensor& logits_TV, std::initializer_list<int64_t> shape) {
  return at::empty(shape, logits_TV.options().dtype(at::kFloat));
}

// Loss and gradient of whole rows; the gradient lies over the logits.
Tensor whole_rows_kernel(const Tensor& logits_TV, const Tensor& labels_T, const CrossEntropyArgs& args, Tensor& loss) {
  const int64_t columns = logits_TV.size(1), rows = logits_TV.size(0);
  const Tensor all_TV = args.exchange.gather_columns(logits_TV).contiguous();
  const Tensor row_losses_T = floats_beside(logits_TV, {rows});
  launch(kernels::CrossEntropyArgs{.type = element_type(all_TV),
                                   .logits = all_TV.mutable_data_ptr(),
                                   .row_stride = all_TV.size(1),
                                   .labels = labels_T.const_data_ptr<int64_t>(),
                                   .row_losses = row_losses_T.mutable_data_ptr<float>(),
                                   .write_gradient = args.with_grad,
                                   .scale = static_cast<float>(args.scale),
                                   .rows = rows,
                                   .vocabulary = all_TV.size(1)});
  launch(kernels::SumLossesArgs{.row_losses = row_losses_T.const_data_ptr<float>(),
                                .rows = rows,
                                .scale = args.scale,
                                .loss = loss.mutable_data_ptr<double>()});
  return args.with_grad ? all_TV.narrow(1, args.first_column, columns) : Tensor();
}

// The log-sum-exps of the whole rows; adds the rows' losses to `loss`.
Tensor exchange_statistics(const Tensor& logits_TV, const Tensor& labels_T, const CrossEntropyArgs& args,
                           Tensor& loss) {
  const int64_t rows = logits_TV.size(0);
  const Tensor max_T = floats_beside(logits_TV, {rows}), sums_2T = floats_beside(logits_TV, {2, rows});
  launch(kernels::CrossEntropyShardArgs{.type = element_type(logits_TV),
                                        .logits = logits_TV.const_data_ptr(),
                                        .row_stride = logits_TV.size(1),
                                        .labels = labels_T.const_data_ptr<int64_t>(),
                                        .first_column = args.first_column,
                                        .row_max = max_T.mutable_data_ptr<float>(),
                                        .row_sum = sums_2T[0].mutable_data_ptr<float>(),
                                        .target_logit = sums_2T[1].mutable_data_ptr<float>(),
                                        .rows = rows,
                                        .vocabulary = logits_TV.size(1)});
  const Tensor largest_T = max_T.clone();
  args.exchange.max(largest_T);
  sums_2T[0].mul_((max_T - largest_T).exp_());
  args.exchange.sum(sums_2T);
  const Tensor log_sum_exp_T = sums_2T[0].log().add_(largest_T);
  const Tensor row_losses_T = (log_sum_exp_T - sums_2T[1]).masked_fill_(labels_T == kIgnoreIndex, 0);
  loss.add_(row_losses_T.sum(at::kDouble), args.scale);
  return log_sum_exp_T;
}

Tensor shard_kernels(const Tensor& logits_TV, const Tensor& labels_T, const CrossEntropyArgs& args, Tensor& loss) {
  const Tensor log_sum_exp_T = exchange_statistics(logits_TV, labels_T, args, loss);
  if (!args.with_grad) return {};
  launch(kernels::CrossEntropyGradientArgs{.type = element_type(logits_TV),
                                           .logits = logits_TV.mutable_data_ptr(),
                                           .row_stride = logits_TV.size(1),
                                           .labels = labels_T.const_data_ptr<int64_t>(),
                                           .first_column = args.first_column,
                                           .log_sum_exp = log_sum_exp_T.const_data_ptr<float>(),
                                           .scale = static_cast<float>(args.scale),
                                           .rows = logits_TV.size(0),
                                           .vocabulary = logits_TV.size(1)});
  return logits_TV;
}

}  // namespace

Tensor cross_entropy(const Tensor& logits_TV, const Tensor& labels_T, const CrossEntropyArgs& args, Tensor& loss) {
  TI_ASSERT(logits_TV.is_contiguous() && labels_T.is_contiguous(), "cross-entropy of strided tensors");
  if (!uses_kernels(logits_TV)) return reference(logits_TV, labels_T, args, loss);
  return exchanges_statistics(args) ? shard_kernels(logits_TV, labels_T, args, loss)
                                    : whole_rows_kernel(logits_TV, labels_T, args, loss);
}

int64_t cross_entropy_chunk_on_gpu(int64_t vocabulary, int64_t weight_element) {
  // Kernels need no copy in fp32: 512 MiB of logits in bf16 are 2048 tokens at 128 thousand columns. Every chunk reads
  // and writes the gradient of the weight. From 1024 tokens for each byte of its elements on that takes about a
  // twentieth of the time of the chunk's products.
  return std::clamp<int64_t>((int64_t{256} << 20) / vocabulary / 128 * 128, 1024 * weight_element, 16384);
}

int64_t cross_entropy_chunk(const Tensor& x_TD, int64_t vocabulary, Dtype weight) {
  if (uses_kernels(x_TD)) {
    return cross_entropy_chunk_on_gpu(vocabulary, static_cast<int64_t>(c10::elementSize(weight)));
  }
  return std::clamp<int64_t>((int64_t{8} << 20) / vocabulary, 64, 4096);  // 32 MiB in fp32
}

}  // namespace titanium::ops
