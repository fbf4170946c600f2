// How Llama is cut for tensor parallelism.
#include "titanium/base/error.h"
#include "titanium/models/llama3/model.h"

namespace titanium::models::llama3 {

const parallel::TensorParallelPlan& Llama3::tensor_parallel_plan() const {
  using enum parallel::TensorParallelStyle;
  static const parallel::TensorParallelPlan plan = {
      {"tok_embeddings", kByColumn},
      {"layers.*.{attention_norm,ffn_norm}", kOnSequence},
      {"layers.*.attention.{wq,wk,wv}", kByColumn},
      {"layers.*.attention.wo", kByRow},
      {"layers.*.feed_forward.{w1,w3}", kByColumn},
      {"layers.*.feed_forward.w2", kByRow},
      {"norm", kOnSequence},
      {"output", kByColumn},
  };
  return plan;
}

void Llama3::check_tensor_parallel(int64_t degree) const {
  const auto check = [&](const char* what, int64_t count) {
    if (count % degree == 0) return;
    throw UsageError(fmt::format(
        "parallelism.tensor_parallel_degree = {} does not divide the model's {} {}. Use a degree that divides "
        "{} heads, {} key/value heads, a feed-forward width of {} and a vocabulary of {}.",
        degree, count, what, args_.n_heads, args_.n_kv_heads, args_.ffn_hidden_dim, args_.vocab_size));
  };
  check("heads", args_.n_heads);
  check("key/value heads", args_.n_kv_heads);
  check("feed-forward columns", args_.ffn_hidden_dim);
  check("vocabulary entries", args_.vocab_size);
}

}  // namespace titanium::models::llama3
