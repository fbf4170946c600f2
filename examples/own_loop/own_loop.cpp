// Builds a small Llama with Titanium's library and trains it with a loop of its own, on the letters of a sentence.
#include <ATen/ops/tensor.h>

#include <cstdio>
#include <string>

#include "titanium/models/language_model.h"
#include "titanium/models/registry.h"
#include "titanium/optim/adam.h"
#include "titanium/optim/grad_norm.h"

using namespace titanium;

int main() {
  const std::string text = "the quick brown fox jumps over the lazy dog, and then the dog jumps over the fox. ";
  const std::vector<int64_t> letters(text.begin(), text.end());
  const auto tokens = at::tensor(std::vector<int64_t>(letters.begin(), letters.end() - 1)).unsqueeze(0);
  const auto labels = at::tensor(std::vector<int64_t>(letters.begin() + 1, letters.end())).unsqueeze(0);

  JobConfig config;  // every option that `titanium train` has, with its default
  config.model.name = "llama3";
  config.model.flavor = "debugmodel";
  auto model = models::as_language_model(models::build_model(config, tokens.size(1)));
  model->materialize(at::kFloat, at::kCPU);
  model->build_buffers(at::kCPU);
  model->init_weights(/*seed=*/1);

  optim::Adam adam(model->parameters(), {.weight_decay = 0});
  adam.materialize();
  for (int step = 1; step <= 20; ++step) {
    for (Parameter* parameter : model->parameters()) parameter->zero_grad();
    const auto loss = model->loss({tokens, nullptr}, labels, 1.0 / static_cast<double>(tokens.numel()));
    loss.backward();  // every operator adds to the gradients of its own weights
    adam.step(/*lr=*/1e-3, optim::total_norm(model->parameters()), /*max_norm=*/1.0);
    std::printf("step %2d  loss %.4f\n", step, loss.item<double>());
  }
}
