// The kernels of layers of experts at the sizes of four models against the rate at which this GPU copies memory,
// measured in the same run. Router and sort move so little that launches dominate: their times count, not their rates.
//
//   build/bench_expert_kernels [part of a name]
#include <random>

#include "bench/kernels/bench.h"
#include "titanium/kernels/route.h"
#include "titanium/kernels/sort_by_expert.h"

namespace titanium::kernels {
namespace {

// Of a micro-batch and a layer.
struct Model {
  const char* name;
  int64_t tokens, dim, top_k, experts, hidden;
  int64_t choices() const { return tokens * top_k; }
};
const std::vector<Model> kModels = {{"DeepSeek 16B", 16384, 2048, 6, 64, 1408},
                                    {"Qwen3 30B-A3B", 16384, 2048, 8, 128, 768},
                                    {"GPT-OSS 20B", 8192, 2880, 4, 32, 2880},
                                    {"Llama 4 16e", 8192, 5120, 1, 16, 8192}};

std::string named(const std::string& name, const Model& model) { return name + ", " + model.name; }

int32_t* integers(Bench& bench, int64_t count) { return static_cast<int32_t*>(bench.room(count * 4)); }
float* floats(Bench& bench, int64_t count) { return static_cast<float*>(bench.random(count, kFp32)); }

// Distinct experts for each token, uniformly or, if skewed, with the lower ones more often.
std::vector<int32_t> random_experts(const Model& model, bool skewed) {
  std::mt19937 generator(1);
  std::vector<int32_t> experts;
  for (int64_t t = 0; t < model.tokens; ++t) {
    std::vector<bool> taken(model.experts);
    for (int64_t k = 0; k < model.top_k;) {
      const auto limit = skewed ? 1 + generator() % model.experts : model.experts;
      const auto expert = static_cast<int32_t>(generator() % limit);
      if (taken[expert]) continue;
      taken[expert] = true;
      experts.push_back(expert);
      ++k;
    }
  }
  return experts;
}

void bench_route(Bench& bench, const Model& model) {
  const int64_t logits = model.tokens * model.experts, bytes = 8 * logits + 8 * model.choices();
  const auto function = model.experts == 64 ? RouterScores::kSigmoid : RouterScores::kSoftmax;
  bench.run(named("route", model), bytes, [&] {
    RouteArgs args{};
    args.function = function;
    args.logits = floats(bench, logits);
    args.bias = floats(bench, model.experts);
    args.experts = integers(bench, model.choices());
    args.weights = floats(bench, model.choices());
    args.scores = floats(bench, logits);
    args.tokens = model.tokens;
    args.num_experts = model.experts;
    args.top_k = model.top_k;
    args.normalise = true;
    args.scale = 1;
    return [args] { route(args, nullptr); };
  });
  bench.run(named("route backward", model), bytes, [&] {
    const RouteBackwardArgs args{function,
                                 floats(bench, model.choices()),
                                 nullptr,
                                 bench.upload(random_experts(model, false)),
                                 floats(bench, logits),
                                 floats(bench, logits),
                                 model.tokens,
                                 model.experts,
                                 model.top_k,
                                 true,
                                 1};
    return [args] { route_backward(args, nullptr); };
  });
}

void bench_sort(Bench& bench, const Model& model) {
  for (const bool skewed : {false, true}) {
    bench.run(named(skewed ? "sort_by_expert, skewed" : "sort_by_expert", model), 12 * model.choices(), [&, skewed] {
      const SortByExpertArgs args{bench.upload(random_experts(model, skewed)),
                                  integers(bench, model.choices()),
                                  integers(bench, model.choices()),
                                  integers(bench, model.experts),
                                  model.choices(),
                                  model.experts,
                                  integers(bench, sort_by_expert_scratch_bytes(model.choices(), model.experts) / 4)};
      return [args] { sort_by_expert(args, nullptr); };
    });
  }
}

void run_all(Bench& bench) {
  for (const Model& model : kModels) {
    bench_route(bench, model);
    bench_sort(bench, model);
  }
}

}  // namespace
}  // namespace titanium::kernels

int main(int argc, char** argv) { return titanium::kernels::run_benchmarks(argc, argv, titanium::kernels::run_all); }
