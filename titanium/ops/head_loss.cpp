#include "titanium/ops/head_loss.h"

#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "titanium/ops/linear.h"

namespace titanium::ops {
namespace {

// Logits of one chunk: about 32 MiB in fp32 keeps the temporary small against everything else and the GEMM efficient.
int64_t chunk_tokens(int64_t vocabulary) { return std::clamp<int64_t>((int64_t{8} << 20) / vocabulary, 64, 4096); }

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
  Tensor grad_TV = log_probabilities_TV.exp_();
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
ChunkLoss whole_rows_loss(const Tensor& logits_TV, const Tensor& labels_T, int64_t first_column,
                          RowExchange& exchange) {
  const int64_t columns = logits_TV.size(1);
  const Tensor all_TV = at::_log_softmax(exchange.gather_columns(logits_TV).to(at::kFloat), 1, false);
  const Tensor sum = sum_of_targets(all_TV, find_targets(labels_T, 0, all_TV.size(1)));
  return {all_TV.size(1) == columns ? all_TV : all_TV.narrow(1, first_column, columns).contiguous(), sum};
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

}  // namespace

Tensor head_loss(const Tensor& x_tD, const HeadLossArgs& args, const Tensor& labels_T, double scale) {
  const bool with_grad = needs_grad({x_tD});
  const c10::AutoGradMode no_grad(false);
  const int64_t first_column = args.weight.part.offset[0], columns = args.weight.rows();
  const Tensor x_TD = args.exchange.gather(x_tD.detach())();
  Tensor loss = at::zeros({}, x_tD.options().dtype(at::kDouble));
  Tensor grad_x_TD = with_grad ? at::empty(x_TD.sizes(), x_TD.options()) : Tensor();
  const int64_t tokens = x_TD.size(0), chunk = chunk_tokens(args.weight.global_shape[0]);
  for (int64_t first = 0; first < tokens; first += chunk) {
    const int64_t count = std::min(chunk, tokens - first);
    const Tensor x = x_TD.narrow(0, first, count);
    const Tensor labels = labels_T.narrow(0, first, count);
    const Targets targets = find_targets(labels, first_column, columns);
    const Tensor logits = linear_forward(x, args.weight);
    ChunkLoss part = args.loss_parallel && args.exchange.ranks() > 1
                         ? loss_parallel_loss(logits, targets, args.exchange)
                         : whole_rows_loss(logits, labels, first_column, args.exchange);
    loss.sub_(part.sum, scale);
    if (!with_grad) continue;
    const Tensor grad = logits_grad(part.log_probabilities_TV, targets, scale).to(x.scalar_type());
    accumulate_weight_grad(grad, x, args.weight);
    grad_x_TD.narrow(0, first, count).copy_(linear_input_grad(grad, args.weight));
  }
  if (with_grad) {
    const Tensor grad_x_tD = args.exchange.reduce_scatter(grad_x_TD)();
    const c10::AutoGradMode with(true);
    record({x_tD}, {loss}, [grad_x_tD](const Tensors&) -> Tensors { return {grad_x_tD}; });
  }
  return loss;
}

}  // namespace titanium::ops
