// Every kernel at the sizes of Llama 3 8B, or of Qwen 3, against the rate at which this GPU copies memory, measured in
// the same run.
//
//   build/bench_kernels [part of a name]
#include <cmath>
#include <random>

#include "bench/kernels/bench.h"
#include "titanium/kernels/adamw.h"
#include "titanium/kernels/copy_tensors.h"
#include "titanium/kernels/cross_entropy.h"
#include "titanium/kernels/embedding_grad.h"
#include "titanium/kernels/head_norm_rope.h"
#include "titanium/kernels/rms_norm.h"
#include "titanium/kernels/rope.h"
#include "titanium/kernels/sum_of_squares.h"
#include "titanium/kernels/swiglu.h"

namespace titanium::kernels {
namespace {

void bench_rms_norm(Bench& bench, int64_t rows, int64_t dim, ElementType type) {
  const int64_t array = rows * dim * element_size(type);
  const std::string of_type = type == kBf16 ? "" : ", fp32";
  bench.run(shape("rms_norm forward" + of_type, rows, dim), array * 2, [&] {
    const RmsNormForwardArgs args{type,
                                  type,
                                  bench.random(rows * dim, type),
                                  bench.random(dim, type),
                                  bench.room(array),
                                  static_cast<float*>(bench.room(rows * 4)),
                                  rows,
                                  dim,
                                  1e-5F};
    return [args] { rms_norm_forward(args, nullptr); };
  });
  struct Variant {
    std::string name;
    bool residual, y;
  };
  for (const Variant& variant :
       {Variant{"", false, false}, {", residual", true, false}, {", residual, y", true, true}}) {
    const int64_t arrays = 3 + static_cast<int64_t>(variant.residual) + static_cast<int64_t>(variant.y);
    bench.run(shape("rms_norm backward" + of_type + variant.name, rows, dim), array * arrays, [&] {
      const RmsNormBackwardArgs args{type,
                                     type,
                                     type,
                                     bench.random(rows * dim, type),
                                     bench.random(rows * dim, type),
                                     static_cast<float*>(bench.random(rows, kFp32)),
                                     bench.random(dim, type),
                                     variant.residual ? bench.random(rows * dim, type) : nullptr,
                                     bench.room(array),
                                     bench.room(dim * 4),
                                     true,
                                     static_cast<float*>(bench.room(rms_norm_backward_scratch_bytes(rows, dim))),
                                     rows,
                                     dim,
                                     /*amax=*/nullptr,
                                     variant.y ? bench.room(array) : nullptr};
      return [args] { rms_norm_backward(args, nullptr); };
    });
  }
  bench.run(shape("rms_norm apply" + of_type, rows, dim), array * 2, [&] {
    const RmsNormApplyArgs args{type,
                                type,
                                bench.random(rows * dim, type),
                                static_cast<float*>(bench.random(rows, kFp32)),
                                bench.random(dim, type),
                                bench.room(array),
                                rows,
                                dim};
    return [args] { rms_norm_apply(args, nullptr); };
  });
}

void bench_rope(Bench& bench, int64_t tokens) {
  const int64_t heads = kHeads + kKvHeads, stride = (heads + kKvHeads) * kHeadDim;
  for (const bool inverse : {false, true}) {
    bench.run(shape(inverse ? "rope inverse, fused qkv" : "rope, fused qkv", tokens, heads * kHeadDim),
              2 * tokens * heads * kHeadDim * 2, [&, inverse] {
                auto* qkv = static_cast<uint16_t*>(bench.random(tokens * stride, kBf16));
                const RopeArgs args{kBf16,    qkv,      qkv + kHeads * kHeadDim,
                                    stride,   stride,   kHeads,
                                    kKvHeads, kHeadDim, static_cast<float*>(bench.random(8192 * kHeadDim, kFp32, 0.5)),
                                    tokens,   8192,     inverse};
                return [args] { rope(args, nullptr); };
              });
  }
}

// Qwen 3: 16 or 32 heads of queries, 8 of keys.
void bench_head_norm_rope(Bench& bench, int64_t tokens, int64_t q_heads) {
  constexpr int64_t kSequence = 4096;
  const int64_t rows = tokens * (q_heads + kKvHeads), array = rows * kHeadDim * 2;
  const auto table = [&] { return static_cast<float*>(bench.random(kSequence * kHeadDim, kFp32, 0.5)); };
  bench.run(shape("head_norm_rope forward", rows, kHeadDim), array * 2, [&] {
    const auto heads = [&](int64_t count) {
      const int64_t elements = tokens * count * kHeadDim;
      return HeadNormRopeForwardArgs::Heads{bench.random(elements, kBf16), bench.random(kHeadDim, kFp32),
                                            bench.room(elements * 2),
                                            static_cast<float*>(bench.room(tokens * count * 4)), count};
    };
    const HeadNormRopeForwardArgs args{kBf16,  kFp32,     heads(q_heads), heads(kKvHeads), kHeadDim, table(),
                                       tokens, kSequence, 1e-6F};
    return [args] { head_norm_rope_forward(args, nullptr); };
  });
  bench.run(shape("head_norm_rope backward", rows, kHeadDim), array * 3, [&] {
    const auto heads = [&](int64_t count) {
      const int64_t elements = tokens * count * kHeadDim;
      void* dy = bench.random(elements, kBf16);
      return HeadNormRopeBackwardArgs::Heads{dy,
                                             bench.random(elements, kBf16),
                                             static_cast<float*>(bench.random(tokens * count, kFp32)),
                                             bench.random(kHeadDim, kFp32),
                                             dy,
                                             bench.room(kHeadDim * 4),
                                             true,
                                             count};
    };
    HeadNormRopeBackwardArgs args{kBf16,    kFp32,   kFp32,   heads(q_heads), heads(kKvHeads),
                                  kHeadDim, table(), nullptr, tokens,         kSequence};
    args.scratch = static_cast<float*>(bench.room(head_norm_rope_scratch_bytes(args)));
    return [args] { head_norm_rope_backward(args, nullptr); };
  });
}

void bench_swiglu(Bench& bench, int64_t rows) {
  const int64_t array = rows * kHidden * 2;
  for (const bool fused : {true, false}) {
    const std::string layout = fused ? ", fused" : ", separate";
    const int64_t stride = fused ? 2 * kHidden : kHidden;
    const auto gate_and_up = [&bench, rows, fused] {
      auto* gate = static_cast<uint16_t*>(bench.random(rows * 2 * kHidden, kBf16));
      return std::pair(gate, gate + (fused ? kHidden : rows * kHidden));
    };
    bench.run(shape("swiglu forward" + layout, rows, kHidden), array * 3, [&] {
      const auto [gate, up] = gate_and_up();
      const SwigluForwardArgs args{kBf16, gate, up, bench.room(array), stride, stride, kHidden, rows, kHidden};
      return [args] { swiglu_forward(args, nullptr); };
    });
    for (const bool product : {false, true}) {
      bench.run(shape("swiglu backward" + layout + (product ? ", product" : ""), rows, kHidden),
                array * (product ? 6 : 5), [&, product] {
                  const auto [gate, up] = gate_and_up();
                  void* grad = bench.random(rows * kHidden, kBf16);
                  const SwigluBackwardArgs args{
                      kBf16,  grad,   gate,   up,      gate, up,     product ? grad : nullptr, kHidden, stride,
                      stride, stride, stride, kHidden, rows, kHidden};
                  return [args] { swiglu_backward(args, nullptr); };
                });
    }
  }
}

void bench_cross_entropy(Bench& bench, int64_t rows, int64_t vocabulary, ElementType type) {
  std::vector<int64_t> labels(rows);
  for (int64_t t = 0; t < rows; ++t) labels[t] = (t * 7919) % vocabulary;
  const int64_t array = rows * vocabulary * element_size(type);
  const std::string suffix = type == kBf16 ? "" : ", fp32";
  const auto floats = [&] { return static_cast<float*>(bench.room(rows * 4)); };
  bench.run(shape("cross_entropy" + suffix, rows, vocabulary), array * 2, [&] {
    const CrossEntropyArgs args{type,        bench.random(rows * vocabulary, type),
                                vocabulary,  bench.upload(labels),
                                floats(),    true,
                                1.0F / 8192, rows,
                                vocabulary};
    const SumLossesArgs sum{args.row_losses, rows, 1.0 / 8192, static_cast<double*>(bench.room(8))};
    return [args, sum] {
      cross_entropy(args, nullptr);
      sum_losses(sum, nullptr);
    };
  });
  bench.run(shape("cross_entropy statistics" + suffix, rows, vocabulary), array, [&] {
    const CrossEntropyShardArgs args{type,       bench.random(rows * vocabulary, type),
                                     vocabulary, bench.upload(labels),
                                     0,          floats(),
                                     floats(),   floats(),
                                     rows,       vocabulary};
    return [args] { cross_entropy_statistics(args, nullptr); };
  });
  bench.run(shape("cross_entropy gradient" + suffix, rows, vocabulary), array * 2, [&] {
    const CrossEntropyGradientArgs args{type,        bench.random(rows * vocabulary, type),
                                        vocabulary,  bench.upload(labels),
                                        0,           floats(),
                                        1.0F / 8192, rows,
                                        vocabulary};
    return [args] { cross_entropy_gradient(args, nullptr); };
  });
}

// The sizes of the tensors of `layers` blocks of Llama 3 8B.
std::vector<int64_t> block_tensors(int layers) {
  std::vector<int64_t> sizes;
  for (int i = 0; i < layers; ++i)
    for (const int64_t size : {kDim * kDim, kDim * 1024, kDim * 1024, kDim * kDim, kDim * kHidden, kDim * kHidden,
                               kDim * kHidden, kDim, kDim})
      sizes.push_back(size);
  return sizes;
}

int64_t total(const std::vector<int64_t>& sizes) {
  int64_t sum = 0;
  for (const int64_t size : sizes) sum += size;
  return sum;
}

void bench_sum_of_squares(Bench& bench, ElementType type) {
  const auto sizes = block_tensors(4);
  bench.run(std::string("sum_of_squares, 4 blocks") + (type == kBf16 ? "" : ", fp32"),
            total(sizes) * element_size(type), [&] {
              std::vector<SumOfSquaresTensor> tensors;
              for (const int64_t size : sizes) tensors.push_back({bench.random(size, type), size, type, 0});
              const auto count = static_cast<int64_t>(tensors.size());
              const int64_t chunks = number_chunks(tensors.data(), count);
              const SumOfSquaresArgs args{bench.upload(tensors), count, chunks,
                                          static_cast<double*>(bench.room(sum_of_squares_scratch_bytes())),
                                          static_cast<double*>(bench.room(8))};
              return [args] { sum_of_squares(args, nullptr); };
            });
}

void bench_adamw(Bench& bench, const std::string& name, ElementType parameter, ElementType gradient, ElementType state,
                 bool stochastic, bool copy = false) {
  const auto sizes = block_tensors(4);
  const int64_t bytes =
      total(sizes) * (2 * element_size(parameter) + element_size(gradient) + 4 * element_size(state) + (copy ? 2 : 0));
  bench.run("adamw, 4 blocks, " + name, bytes, [&] {
    std::vector<AdamWTensor> tensors;
    int64_t first = 0;
    for (const int64_t size : sizes) {
      tensors.push_back({bench.random(size, parameter), bench.random(size, gradient, 1e-3),
                         bench.room(size * element_size(state)), bench.room(size * element_size(state)), size,
                         parameter, gradient, state, 0});
      tensors.back().random_first = first;
      if (copy) tensors.back().copy = bench.room(size * 2);
      first += size;
    }
    AdamWArgs args{};
    args.count = static_cast<int64_t>(tensors.size());
    args.chunks = number_chunks(tensors.data(), args.count);
    args.tensors = bench.upload(tensors);
    args.learning_rate = 3e-4;
    args.beta1 = 0.9;
    args.beta2 = 0.95;
    args.eps = 1e-8;
    args.weight_decay = 0.1;
    args.decoupled = true;
    args.step = 10;
    args.stochastic_rounding = stochastic;
    return [args] { adamw(args, nullptr); };
  });
}

// Ids as in text: the frequency of the n-th most frequent is about proportional to 1/n.
void bench_embedding_grad(Bench& bench, int64_t tokens, ElementType table) {
  std::mt19937_64 generator(1);
  std::uniform_real_distribution<double> uniform(0, std::log(static_cast<double>(kVocabulary)));
  std::vector<std::pair<int64_t, int64_t>> pairs(tokens);
  for (int64_t t = 0; t < tokens; ++t) pairs[t] = {static_cast<int64_t>(std::exp(uniform(generator))) - 1, t};
  std::sort(pairs.begin(), pairs.end());
  std::vector<int64_t> ids, order;
  int64_t distinct = 0;
  for (const auto& [id, t] : pairs) {
    distinct += ids.empty() || ids.back() != id;
    ids.push_back(id);
    order.push_back(t);
  }
  const int64_t bytes = tokens * kDim * 2 + 2 * distinct * kDim * element_size(table);
  bench.run(shape("embedding_grad to " + std::string(table == kBf16 ? "bf16, " : "fp32, ") + std::to_string(distinct) +
                      " ids",
                  tokens, kDim),
            bytes, [&] {
              const EmbeddingGradArgs args{kBf16,
                                           table,
                                           bench.random(tokens * kDim, kBf16),
                                           bench.upload(ids),
                                           bench.upload(order),
                                           bench.room(kVocabulary * kDim * element_size(table)),
                                           0,
                                           kVocabulary,
                                           tokens,
                                           kDim,
                                           static_cast<float*>(bench.room(embedding_grad_scratch_bytes(tokens, kDim)))};
              return [args] { embedding_grad(args, nullptr); };
            });
}

// `ways` > 1: each tensor's rows come out of a buffer in which the parts of so many ranks lie beside each other.
void bench_copy(Bench& bench, const std::string& name, ElementType from, ElementType to, bool accumulate,
                int64_t ways) {
  const auto sizes = block_tensors(2);
  const int64_t bytes = total(sizes) * (element_size(from) + element_size(to) * (accumulate ? 2 : 1));
  bench.run("copy_tensors, 2 blocks, " + name, bytes, [&] {
    std::vector<CopyTensor> tensors;
    for (const int64_t size : sizes)
      tensors.push_back({bench.random(size, from), bench.room(size * element_size(to)), ways, size / ways, size / ways,
                         size / ways, from, to, 0});
    const auto count = static_cast<int64_t>(tensors.size());
    const int64_t chunks = number_chunks(tensors.data(), count);
    const CopyTensorsArgs args{bench.upload(tensors), count, chunks, accumulate};
    return [args] { copy_tensors(args, nullptr); };
  });
}

void run_all(Bench& bench) {
  bench_copy(bench, "bf16 to bf16", kBf16, kBf16, false, 1);
  bench_copy(bench, "bf16 to bf16, 8 rows", kBf16, kBf16, false, 8);
  bench_copy(bench, "fp32 to fp32", kFp32, kFp32, false, 1);
  bench_copy(bench, "fp32 to bf16", kFp32, kBf16, false, 1);
  bench_copy(bench, "bf16 to fp32", kBf16, kFp32, false, 1);
  bench_copy(bench, "bf16 added to fp32", kBf16, kFp32, true, 1);
  bench_copy(bench, "bf16 added to bf16", kBf16, kBf16, true, 1);
  for (const int64_t rows : {8192, 16384}) {
    bench_rms_norm(bench, rows, kDim, kBf16);
    bench_rope(bench, rows);
    bench_swiglu(bench, rows);
  }
  bench_head_norm_rope(bench, 16384, 16);
  bench_head_norm_rope(bench, 16384, kHeads);
  bench_rms_norm(bench, 16384, 2048, kBf16);
  bench_rms_norm(bench, 8192, 8192, kBf16);
  bench_rms_norm(bench, 262144, 128, kBf16);
  bench_rms_norm(bench, 16384, kDim, kFp32);
  bench_cross_entropy(bench, 1024, kVocabulary, kBf16);
  bench_cross_entropy(bench, 4096, kVocabulary, kBf16);
  bench_cross_entropy(bench, 4096, 151936, kBf16);
  bench_cross_entropy(bench, 16384, 2048, kBf16);
  bench_cross_entropy(bench, 2048, kVocabulary, kFp32);
  bench_sum_of_squares(bench, kBf16);
  bench_sum_of_squares(bench, kFp32);
  bench_adamw(bench, "bf16", kBf16, kBf16, kBf16, false);
  bench_adamw(bench, "bf16, stochastic", kBf16, kBf16, kBf16, true);
  bench_adamw(bench, "fp32", kFp32, kFp32, kFp32, false);
  bench_adamw(bench, "fp32, copy in bf16", kFp32, kFp32, kFp32, false, /*copy=*/true);
  bench_adamw(bench, "fp32, bf16 gradients", kFp32, kBf16, kFp32, false);
  for (const int64_t tokens : {8192, 16384}) {
    bench_embedding_grad(bench, tokens, kBf16);
    bench_embedding_grad(bench, tokens, kFp32);
  }
}

}  // namespace
}  // namespace titanium::kernels

int main(int argc, char** argv) { return titanium::kernels::run_benchmarks(argc, argv, titanium::kernels::run_all); }
