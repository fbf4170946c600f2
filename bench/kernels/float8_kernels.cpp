// The kernels of float8 training at the sizes of Llama 3 8B against the rate at which this GPU copies memory.
//
//   build/bench_float8_kernels [part of a name]
#include "bench/kernels/bench.h"
#include "titanium/kernels/float8.h"
#include "titanium/kernels/rms_norm.h"
#include "titanium/kernels/rope.h"
#include "titanium/kernels/swiglu.h"

namespace titanium::kernels {
namespace {

constexpr int64_t kTokens = 16384;

float* floats(Bench& bench, int64_t count) { return static_cast<float*>(bench.room(count * 4)); }

// 4.5 standard deviations, as of a large normal tensor.
float* some_amax(Bench& bench) { return bench.upload(std::vector<float>{4.5F}); }

Float8Output output(Bench& bench, int64_t elements, bool values, bool transposed,
                    Float8Format format = Float8Format::kE4m3) {
  return {format,
          false,
          some_amax(bench),
          values ? bench.room(elements) : nullptr,
          transposed ? bench.room(elements) : nullptr,
          floats(bench, 1)};
}

std::string name_of(const std::string& name, ElementType type) { return name + (type == kBf16 ? "" : ", fp32"); }

void bench_maxima(Bench& bench, int64_t rows, int64_t dim, ElementType type) {
  const int64_t bytes = rows * dim * element_size(type);
  bench.run(shape(name_of("absolute_maximum", type), rows, dim), bytes, [&] {
    const AbsoluteMaximumArgs args{type, bench.random(rows * dim, type), dim, rows, dim, floats(bench, 1)};
    return [args] { absolute_maximum(args, nullptr); };
  });
  bench.run(shape(name_of("column_maxima", type), rows, dim), bytes, [&] {
    const ColumnMaximaArgs args{type, bench.random(rows * dim, type), dim, rows, dim, floats(bench, dim)};
    return [args] { column_maxima(args, nullptr); };
  });
}

void bench_tensor(Bench& bench, int64_t rows, int64_t dim, ElementType type) {
  const int64_t elements = rows * dim;
  const auto run = [&](const std::string& what, bool values, bool transposed, Float8Format format) {
    const int64_t bytes = elements * (element_size(type) + (values ? 1 : 0) + (transposed ? 1 : 0));
    bench.run(shape(name_of("quantize_tensor" + what, type), rows, dim), bytes, [&] {
      const QuantizeTensorArgs args{
          type, bench.random(elements, type), dim, rows, dim, output(bench, elements, values, transposed, format)};
      return [args] { quantize_tensor(args, nullptr); };
    });
  };
  run(", both", true, true, Float8Format::kE4m3);
  run(", both, e5m2", true, true, Float8Format::kE5m2);
  run(", values", true, false, Float8Format::kE4m3);
  run(", transposed", false, true, Float8Format::kE4m3);
}

void bench_fused(Bench& bench) {
  const int64_t narrow = kTokens * kDim;
  for (const bool values : {true, false}) {
    const std::string what = values ? ", both" : ", transposed";
    const int64_t outputs = values ? 2 : 1;
    bench.run(shape("quantize_rms_norm" + what, kTokens, kDim), narrow * (2 + outputs), [&, values] {
      const QuantizeRmsNormArgs args{kBf16,
                                     kBf16,
                                     bench.random(narrow, kBf16),
                                     static_cast<float*>(bench.random(kTokens, kFp32)),
                                     bench.random(kDim, kBf16),
                                     kTokens,
                                     kDim,
                                     output(bench, narrow, values, true)};
      return [args] { quantize_rms_norm(args, nullptr); };
    });
  }
}

void bench_lines(Bench& bench, int64_t rows, int64_t dim) {
  const int64_t elements = rows * dim;
  for (const bool column_amax : {false, true}) {
    bench.run(shape(std::string("quantize_rows") + (column_amax ? ", column amax" : ""), rows, dim), elements * 3,
              [&, column_amax] {
                const QuantizeRowsArgs args{kBf16,
                                            Float8Format::kE4m3,
                                            bench.random(elements, kBf16),
                                            dim,
                                            rows,
                                            dim,
                                            bench.room(elements),
                                            floats(bench, rows),
                                            column_amax ? floats(bench, dim) : nullptr};
                return [args] { quantize_rows(args, nullptr); };
              });
  }
  bench.run(shape("quantize_columns", rows, dim), elements * 3, [&] {
    const QuantizeColumnsArgs args{kBf16,
                                   Float8Format::kE4m3,
                                   bench.random(elements, kBf16),
                                   dim,
                                   rows,
                                   dim,
                                   bench.upload(std::vector<float>(static_cast<size_t>(dim), 4.0F)),
                                   bench.room(elements),
                                   floats(bench, dim)};
    return [args] { quantize_columns(args, nullptr); };
  });
}

// Producers that also find the largest magnitude; without y or product they write less.
void bench_rms_norm(Bench& bench) {
  const int64_t narrow = kTokens * kDim;
  for (const bool written : {true, false}) {
    const std::string what = written ? ", amax" : ", amax only";
    bench.run(shape("rms_norm forward" + what, kTokens, kDim), narrow * 2 * (written ? 2 : 1), [&, written] {
      const RmsNormForwardArgs args{kBf16,
                                    kBf16,
                                    bench.random(narrow, kBf16),
                                    bench.random(kDim, kBf16),
                                    written ? bench.room(narrow * 2) : nullptr,
                                    floats(bench, kTokens),
                                    kTokens,
                                    kDim,
                                    1e-5F,
                                    floats(bench, 1)};
      return [args] { rms_norm_forward(args, nullptr); };
    });
  }
  bench.run(shape("rms_norm backward, residual, amax", kTokens, kDim), narrow * 2 * 4, [&] {
    const RmsNormBackwardArgs args{kBf16,
                                   kBf16,
                                   kBf16,
                                   bench.random(narrow, kBf16),
                                   bench.random(narrow, kBf16),
                                   static_cast<float*>(bench.random(kTokens, kFp32)),
                                   bench.random(kDim, kBf16),
                                   bench.random(narrow, kBf16),
                                   bench.room(narrow * 2),
                                   bench.room(kDim * 4),
                                   true,
                                   static_cast<float*>(bench.room(rms_norm_backward_scratch_bytes(kTokens, kDim))),
                                   kTokens,
                                   kDim,
                                   floats(bench, 1)};
    return [args] { rms_norm_backward(args, nullptr); };
  });
}

void bench_swiglu(Bench& bench) {
  const int64_t wide = kTokens * kHidden;
  for (const bool written : {true, false}) {
    const std::string what = written ? ", amax" : ", amax only";
    bench.run(shape("swiglu forward" + what, kTokens, kHidden), wide * 2 * (written ? 3 : 2), [&, written] {
      const SwigluForwardArgs args{kBf16,
                                   bench.random(wide, kBf16),
                                   bench.random(wide, kBf16),
                                   written ? bench.room(wide * 2) : nullptr,
                                   kHidden,
                                   kHidden,
                                   kHidden,
                                   kTokens,
                                   kHidden,
                                   floats(bench, 1)};
      return [args] { swiglu_forward(args, nullptr); };
    });
  }
  bench.run(shape("swiglu backward, amax", kTokens, kHidden), wide * 2 * 5, [&] {
    void* gate = bench.random(wide, kBf16);
    void* up = bench.random(wide, kBf16);
    const SwigluBackwardArgs args{kBf16,
                                  bench.random(wide, kBf16),
                                  gate,
                                  up,
                                  gate,
                                  up,
                                  nullptr,
                                  kHidden,
                                  kHidden,
                                  kHidden,
                                  kHidden,
                                  kHidden,
                                  0,
                                  kTokens,
                                  kHidden,
                                  floats(bench, 1),
                                  floats(bench, 1)};
    return [args] { swiglu_backward(args, nullptr); };
  });
}

void bench_rope(Bench& bench) {
  const int64_t heads = kHeads + kKvHeads;
  bench.run(shape("rope inverse, amax", kTokens, heads * kHeadDim), 2 * kTokens * heads * kHeadDim * 2, [&] {
    const RopeArgs args{kBf16,
                        bench.random(kTokens * kHeads * kHeadDim, kBf16),
                        bench.random(kTokens * kKvHeads * kHeadDim, kBf16),
                        kHeads * kHeadDim,
                        kKvHeads * kHeadDim,
                        kHeads,
                        kKvHeads,
                        kHeadDim,
                        static_cast<float*>(bench.random(8192 * kHeadDim, kFp32, 0.5)),
                        kTokens,
                        8192,
                        /*inverse=*/true,
                        /*halves=*/false,
                        floats(bench, 1),
                        floats(bench, 1)};
    return [args] { rope(args, nullptr); };
  });
}

void run_all(Bench& bench) {
  for (const int64_t dim : {kDim, kHidden}) {
    bench_maxima(bench, kTokens, dim, kBf16);
    bench_tensor(bench, kTokens, dim, kBf16);
    bench_lines(bench, kTokens, dim);
  }
  bench_maxima(bench, kHidden, kDim, kFp32);  // a weight
  bench_tensor(bench, kHidden, kDim, kFp32);
  bench_fused(bench);
  bench_rms_norm(bench);
  bench_swiglu(bench);
  bench_rope(bench);
}

}  // namespace
}  // namespace titanium::kernels

int main(int argc, char** argv) { return titanium::kernels::run_benchmarks(argc, argv, titanium::kernels::run_all); }
