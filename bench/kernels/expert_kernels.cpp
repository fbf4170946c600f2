// The kernels of layers of experts at the sizes of four models against the rate at which this GPU copies memory,
// measured in the same run. Router and sort move so little that launches dominate: their times count, not their rates.
//
//   build/bench_expert_kernels [part of a name]
#include <random>

#include "bench/kernels/bench.h"
#include "titanium/kernels/expert_column_sums.h"
#include "titanium/kernels/expert_rows.h"
#include "titanium/kernels/expert_swiglu.h"
#include "titanium/kernels/route.h"
#include "titanium/kernels/sort_by_expert.h"

namespace titanium::kernels {
namespace {

// The sizes of one layer for one micro-batch.
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

// Rows as sort_by_expert gives them.
struct Rows {
  std::vector<int32_t> of_choice, choice, ends;
};
Rows sorted_rows(const Model& model, bool skewed) {
  const std::vector<int32_t> experts = random_experts(model, skewed);
  Rows rows;
  rows.ends.resize(model.experts);
  for (const int32_t expert : experts) ++rows.ends[expert];
  std::vector<int32_t> next(model.experts);
  for (int64_t e = 1; e < model.experts; ++e) {
    rows.ends[e] += rows.ends[e - 1];
    next[e] = rows.ends[e - 1];
  }
  rows.choice.resize(experts.size());
  for (size_t choice = 0; choice < experts.size(); ++choice) {
    rows.of_choice.push_back(next[experts[choice]]++);
    rows.choice[rows.of_choice.back()] = static_cast<int32_t>(choice);
  }
  return rows;
}

void bench_rows(Bench& bench, const Model& model, const Rows& rows) {
  const int64_t tokens = model.tokens * model.dim, chosen = model.choices() * model.dim;
  for (const bool weighted : {false, true}) {
    bench.run(named(weighted ? "gather_rows, weighted" : "gather_rows", model), 2 * (tokens + chosen), [&, weighted] {
      const GatherRowsArgs args{kBf16,
                                bench.random(tokens, kBf16),
                                bench.upload(rows.of_choice),
                                weighted ? floats(bench, model.choices()) : nullptr,
                                bench.room(2 * chosen),
                                model.tokens,
                                model.top_k,
                                model.dim};
      return [args] { gather_rows(args, nullptr); };
    });
    bench.run(named(weighted ? "combine_rows, weighted, addend" : "combine_rows", model),
              2 * (tokens * (weighted ? 2 : 1) + chosen), [&, weighted] {
                void* y = bench.random(tokens, kBf16);
                const CombineRowsArgs args{kBf16,
                                           bench.random(chosen, kBf16),
                                           bench.upload(rows.of_choice),
                                           weighted ? floats(bench, model.choices()) : nullptr,
                                           weighted ? y : nullptr,
                                           y,
                                           model.tokens,
                                           model.top_k,
                                           model.dim};
                return [args] { combine_rows(args, nullptr); };
              });
  }
}

void bench_swiglu(Bench& bench, const Model& model, const Rows& rows) {
  const int64_t count = model.choices(), dim = model.hidden, array = count * dim * 2;
  const auto weights = [&] {
    return RowWeights{floats(bench, count), bench.upload(rows.choice), floats(bench, count)};
  };
  bench.run(named("expert_swiglu backward", model), 6 * array, [&] {
    auto* gate = static_cast<uint16_t*>(bench.random(2 * count * dim, kBf16));
    void* grad = bench.random(count * dim, kBf16);
    const ExpertSwigluBackwardArgs args{
        kBf16,    grad,    gate,    gate + dim, gate, gate + dim, grad, dim,
        2 * dim,  2 * dim, 2 * dim, 2 * dim,    dim,  count,      dim,  bench.upload(rows.ends) + model.experts - 1,
        weights()};
    return [args] { expert_swiglu_backward(args, nullptr); };
  });
}

void bench_biases(Bench& bench, const Model& model, const Rows& rows) {
  const int64_t count = model.choices(), dim = model.hidden, array = count * dim * 2;
  bench.run(named("clamped_swiglu forward", model), 3 * array, [&] {
    const ClampedSwigluForwardArgs args{kBf16,
                                        kBf16,
                                        bench.random(2 * count * dim, kBf16),
                                        bench.random(model.experts * 2 * dim, kBf16),
                                        bench.upload(rows.ends),
                                        bench.room(array),
                                        2 * dim,
                                        dim,
                                        count,
                                        dim,
                                        model.experts,
                                        7};
    return [args] { clamped_swiglu_forward(args, nullptr); };
  });
  bench.run(named("clamped_swiglu backward", model), 6 * array, [&] {
    void* fused = bench.random(2 * count * dim, kBf16);
    void* grad = bench.random(count * dim, kBf16);
    const ClampedSwigluBackwardArgs args{kBf16,
                                         kBf16,
                                         grad,
                                         fused,
                                         bench.random(model.experts * 2 * dim, kBf16),
                                         bench.upload(rows.ends),
                                         fused,
                                         grad,
                                         dim,
                                         2 * dim,
                                         2 * dim,
                                         dim,
                                         count,
                                         dim,
                                         model.experts,
                                         7,
                                         {floats(bench, count), bench.upload(rows.choice), floats(bench, count)}};
    return [args] { clamped_swiglu_backward(args, nullptr); };
  });
  for (const int64_t columns : {2 * dim, model.dim}) {
    const bool weighted = columns == model.dim;
    bench.run(named("expert_column_sums of " + std::to_string(columns) + (weighted ? ", weighted" : ""), model),
              count * columns * 2, [&, columns, weighted] {
                const ExpertColumnSumsArgs args{
                    kBf16,
                    kBf16,
                    bench.random(count * columns, kBf16),
                    columns,
                    bench.upload(rows.ends),
                    weighted ? floats(bench, count) : nullptr,
                    weighted ? bench.upload(rows.choice) : nullptr,
                    bench.room(model.experts * columns * 2),
                    true,
                    model.experts,
                    columns,
                    static_cast<float*>(bench.room(expert_column_sums_scratch_bytes(model.experts, columns)))};
                return [args] { expert_column_sums(args, nullptr); };
              });
  }
}

void run_all(Bench& bench) {
  for (const Model& model : kModels) {
    const Rows rows = sorted_rows(model, false);
    bench_route(bench, model);
    bench_sort(bench, model);
    bench_rows(bench, model, rows);
    if (model.experts == 32) {
      bench_biases(bench, model, rows);
    } else {
      bench_swiglu(bench, model, rows);
    }
  }
}

}  // namespace
}  // namespace titanium::kernels

int main(int argc, char** argv) { return titanium::kernels::run_benchmarks(argc, argv, titanium::kernels::run_all); }
