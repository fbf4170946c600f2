// What benchmarks of experts share: sizes of models, counts of rows, and time under sustained load.
#pragma once

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "titanium/tensor/gpu_backend.h"
#include "titanium/tensor/tensor.h"

namespace titanium::ops {

// The sizes of one layer of experts for one micro-batch.
struct Model {
  const char* name;
  int64_t rows, dim, experts, hidden;
};
constexpr Model kModels[] = {{"DeepSeek 16B", 16384 * 6, 2048, 64, 1408},
                             {"Qwen3 30B-A3B", 16384 * 8, 2048, 128, 768},
                             {"GPT-OSS 20B", 8192 * 4, 2880, 32, 2880},
                             {"Llama 4 16e", 8192, 5120, 16, 8192}};
constexpr Model kSmall = {"small", 64, 32, 4, 48};

// Over long runs: a GPU at its power limit slows down.
inline double seconds_of(const std::function<void()>& work, bool cuda) {
  const auto run = [&](int calls) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) work();
    if (cuda) synchronize_gpu();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  run(3);
  const int calls = static_cast<int>(std::clamp(0.4 / (run(3) / 3), 3.0, 10000.0));
  return run(calls) / calls;
}

// The end of each expert's rows. Skewed: the logarithm of an expert's share is normal, as routers without balancing
// give.
inline Tensor ends_of(const Model& model, bool skewed, Device device) {
  std::mt19937 generator(1);
  std::normal_distribution<double> normal;
  std::vector<double> shares(model.experts);
  double sum = 0, before = 0;
  for (double& share : shares) sum += share = skewed ? std::exp(normal(generator)) : 1.0;
  std::vector<int32_t> ends;
  for (const double share : shares) {
    before += share;
    ends.push_back(static_cast<int32_t>(std::lround(before / sum * static_cast<double>(model.rows))));
  }
  return at::tensor(ends, at::kInt).to(device);
}

}  // namespace titanium::ops
