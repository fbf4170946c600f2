#include "titanium/train/inference/generate.h"

#include <ATen/ops/cumsum.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>

#include "titanium/base/error.h"
#include "titanium/kernels/counter_random.h"
#include "titanium/tensor/host_copy.h"

namespace titanium::train {
namespace {

// One token for a row of logits [V], on the CPU in fp32. `position` counts the draws of this row.
int64_t sample(const Tensor& logits_V, const GenerateOptions& options, int64_t row, int64_t position) {
  if (options.temperature == 0) return logits_V.argmax().item<int64_t>();
  Tensor scaled = logits_V / options.temperature;
  if (options.top_k > 0 && options.top_k < scaled.numel()) {
    const Tensor smallest_kept = std::get<0>(at::topk(scaled, options.top_k)).select(0, options.top_k - 1);
    scaled = scaled.masked_fill(scaled < smallest_kept, -std::numeric_limits<double>::infinity());
  }
  const Tensor cumulative = at::cumsum(at::softmax(scaled.to(at::kDouble), 0), 0);
  const double uniform =
      kernels::random_uniform(options.seed + static_cast<uint64_t>(row) * 0x9E3779B97F4A7C15, position);
  const double target = uniform * cumulative.select(0, -1).item<double>();
  return std::min<int64_t>((cumulative <= target).sum().item<int64_t>(), scaled.numel() - 1);
}

}  // namespace

std::vector<std::vector<int64_t>> generate(models::LanguageModel& model, const std::vector<int64_t>& prompt,
                                           const GenerateOptions& options, Device device) {
  TI_CHECK(!prompt.empty(), "the prompt has no tokens. Give a text, or a tokenizer with a begin-of-sequence token.");
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  models::Decoding& decoding = models::decoding_of(model);
  nn::KvCache cache = decoding.make_cache(options.batch, prompt_tokens + options.max_new_tokens);
  std::vector<int64_t> next;
  for (int64_t row = 0; row < options.batch; ++row) next.insert(next.end(), prompt.begin(), prompt.end());
  std::vector<std::vector<int64_t>> generated(options.batch);
  std::vector<bool> ended(options.batch, false);
  for (int64_t position = 0; position < options.max_new_tokens; ++position) {
    const auto tokens_per_row = static_cast<int64_t>(next.size()) / options.batch;
    const Tensor tokens_BS = copy_to_device(next, device).view({options.batch, tokens_per_row});
    const Tensor logits_BV = decoding.decode(tokens_BS, cache).to(at::kCPU, at::kFloat);
    next.assign(options.batch, 0);
    for (int64_t row = 0; row < options.batch; ++row) {
      if (ended[row]) continue;
      next[row] = sample(logits_BV[row], options, row, position);
      generated[row].push_back(next[row]);
      ended[row] = options.eos_id == next[row];
    }
    if (std::all_of(ended.begin(), ended.end(), [](bool end) { return end; })) break;
  }
  return generated;
}

}  // namespace titanium::train
