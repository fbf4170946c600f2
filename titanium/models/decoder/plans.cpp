// How a decoder is cut for tensor parallelism, and what it costs.
#include "titanium/base/error.h"
#include "titanium/models/decoder/decoder.h"
#include "titanium/ops/cross_entropy.h"

namespace titanium::models::decoder {

parallel::TensorParallelPlan Decoder::tensor_parallel_plan() const {
  using enum parallel::TensorParallelStyle;
  parallel::TensorParallelPlan plan = {
      {"tok_embeddings", kByColumn},
      {"layers.*.{attention_norm,ffn_norm}", kOnSequence},
      {"norm", kOnSequence},
      {"output", kByColumn},
  };
  for (const auto& block : blocks_) {
    if (!block) continue;
    for (const Half* half : block->halves()) {
      for (const parallel::TensorParallelRule& rule : half->tensor_parallel_plan()) {
        const bool known = std::ranges::count(plan, rule.pattern, &parallel::TensorParallelRule::pattern) > 0;
        if (!known) plan.push_back(rule);
      }
    }
  }
  return plan;
}

void Decoder::check_tensor_parallel(int64_t degree) const {
  std::vector<std::string> sizes;
  const CutSize* refused = nullptr;
  std::vector<CutSize> all;
  for (int64_t layer = 0; layer < block_count(); ++layer) {
    const auto block = make_block(layer);  // those of other stages too, so that all ranks say the same
    for (const Half* half : block->halves()) {
      for (const CutSize& size : half->cut_sizes()) all.push_back(size);
    }
  }
  all.push_back({"vocabulary entries", vocabulary()});
  for (const CutSize& size : all) {
    if (refused == nullptr && size.count % degree != 0) refused = &size;
    std::string text = fmt::format("{} {}", size.count, size.what);
    if (std::ranges::count(sizes, text) == 0) sizes.push_back(std::move(text));
  }
  if (refused == nullptr) return;
  const std::string last = sizes.back();
  sizes.pop_back();
  throw UsageError(fmt::format(
      "parallelism.tensor_parallel_degree = {} does not divide the model's {} {}. Use a degree that divides {} and {}.",
      degree, refused->count, refused->what, fmt::join(sizes, ", "), last));
}

int64_t Decoder::head_bytes(int64_t tokens, int64_t weight_element) const {
  if (!norm_) return 0;
  const auto element = static_cast<int64_t>(c10::elementSize(compute_dtype));
  const int64_t chunk = std::min(tokens, ops::cross_entropy_chunk_on_gpu(args().vocab_size, weight_element));
  // Logits; x, its norm, and the gradient of it.
  return (chunk * args().vocab_size + 3 * tokens * args().dim) * element;
}

int64_t Decoder::key_value_width() const {
  int64_t width = 0;
  for (int64_t layer = 0; layer < block_count(); ++layer) {
    width = std::max(width, make_block(layer)->attention().key_value_width());
  }
  return width;
}

ModelSize Decoder::size(int64_t seq_len) const {
  ModelSize size;
  const Decoder whole(family_);
  for (const Parameter* parameter : whole.parameters()) size.parameters += volume(parameter->global_shape);
  // The embedding is a look-up; the head is a matrix product even where it shares the embedding's matrix.
  int64_t multiplied = size.parameters - (args().tied_embeddings ? 0 : args().vocab_size * args().dim);
  int64_t scores = 0;
  for (const auto& block : whole.blocks_) {
    for (const Half* half : block->halves()) {
      int64_t elements = 0;
      for (const Parameter* parameter : half->parameters()) elements += volume(parameter->global_shape);
      multiplied -= elements - half->multiplied_elements();
    }
    scores += block->attention().score_multiplications(seq_len);
  }
  size.flops_per_token = 6.0 * static_cast<double>(multiplied) + 6.0 * static_cast<double>(scores);
  return size;
}

}  // namespace titanium::models::decoder
