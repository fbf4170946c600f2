#include "titanium/train/inference/evaluate.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <c10/core/GradMode.h>

#include "titanium/base/error.h"
#include "titanium/tensor/host_copy.h"

namespace titanium::train {
namespace {

void check_tokens(const std::vector<int64_t>& tokens, size_t sequence, int64_t vocabulary) {
  for (const int64_t token : tokens) {
    TI_CHECK(token >= 0 && token < vocabulary, "sequence {} holds token {}, but the model's vocabulary has {} entries.",
             sequence, token, vocabulary);
  }
}

}  // namespace

Evaluation evaluate(models::LanguageModel& model, const std::vector<std::vector<int64_t>>& sequences,
                    int64_t max_seq_len, Device device, const std::function<void(size_t, const Tensor&)>& on_logits) {
  const c10::AutoGradMode no_grad(false);
  Evaluation result;
  double total = 0;
  for (size_t sequence = 0; sequence < sequences.size(); ++sequence) {
    const std::vector<int64_t>& tokens = sequences[sequence];
    check_tokens(tokens, sequence, model.vocabulary());
    std::vector<Tensor> pieces;
    for (size_t first = 0; first < tokens.size(); first += max_seq_len) {
      const std::span piece = std::span(tokens).subspan(first, std::min<size_t>(max_seq_len, tokens.size() - first));
      const auto length = static_cast<int64_t>(piece.size());
      const Tensor tokens_BS = copy_to_device(piece, device).view({1, length});
      const Tensor logits_SV = models::decoding_of(model).logits({tokens_BS, nullptr})[0].to(at::kFloat);
      if (on_logits) pieces.push_back(logits_SV.cpu());
      if (length < 2) continue;
      const Tensor losses = at::cross_entropy_loss(logits_SV.narrow(0, 0, length - 1),
                                                   tokens_BS[0].narrow(0, 1, length - 1), {}, at::Reduction::None);
      total += losses.sum(at::kDouble).item<double>();
      result.tokens += length - 1;
    }
    if (on_logits && !pieces.empty()) on_logits(sequence, at::cat(pieces));
  }
  TI_CHECK(result.tokens > 0, "there is nothing to predict: every sequence has fewer than two tokens.");
  result.loss = total / static_cast<double>(result.tokens);
  result.perplexity = std::exp(result.loss);
  return result;
}

}  // namespace titanium::train
