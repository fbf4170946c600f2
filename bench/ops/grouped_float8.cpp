// Products of experts in float8 at the sizes of models, sustained, with balanced and with skewed counts of rows:
// torch's kernel and ours (kernels/grouped_float8.h), in TFLOP/s; and what makes their operands, in microseconds and as
// a share of the rate at which this GPU copies memory, by the bytes that cannot be avoided.
//
//   bench_grouped_float8 [part of a model's name]
#include <ATen/ops/_scaled_grouped_mm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include <cstdio>
#include <string>

#include "bench/ops/expert_models.h"
#include "titanium/ops/experts/expert_activation.h"
#include "titanium/ops/gpu_kernels.h"
#include "titanium/ops/kernel_choice.h"
#include "titanium/ops/linear/quantize.h"

namespace titanium::ops {
namespace {

struct Bench {
  const Model& model;
  Device device;
  double copy_rate;  // bytes per second

  at::TensorOptions options(Dtype dtype) const { return at::TensorOptions(dtype).device(device); }
  Tensor bf16(const Shape& shape) const { return at::randn(shape, options(at::kBFloat16)); }
  Tensor e4m3(const Shape& shape) const { return bf16(shape).to(kE4m3); }
  Tensor floats(const Shape& shape) const { return at::ones(shape, options(at::kFloat)); }

  static double seconds(const std::function<void()>& work) { return seconds_of(work, /*cuda=*/true); }
  void print_bytes(const char* name, int64_t bytes, const std::function<void()>& work) const {
    const double took = seconds(work), rate = static_cast<double>(bytes) / took;
    std::printf("%-14s %-44s %8.1f us %5.1f %% of a copy\n", model.name, name, took * 1e6, 100 * rate / copy_rate);
    std::fflush(stdout);
  }
};

kernels::Float8Lines lines_of(const Tensor& data, const Tensor& reciprocals) {
  return {data.const_data_ptr(), reciprocals.const_data_ptr<float>()};
}

double measured_copy_rate(Device device) {
  const Tensor from = at::zeros({int64_t{1} << 30}, at::TensorOptions(at::kByte).device(device));
  const Tensor to = at::empty_like(from);
  return 2.0 * static_cast<double>(from.numel()) / Bench::seconds([&] { to.copy_(from); });
}

using Work = std::function<void(const Tensor& ends)>;
void print_product(const Bench& bench, const char* name, double operations, const Work& torch, const Work& ours) {
  std::printf("%-14s %-44s", bench.model.name, name);
  for (const bool skewed : {false, true}) {
    const Tensor ends = ends_of(bench.model, skewed, bench.device);
    for (const Work& work : {torch, ours}) {
      if (work) {
        std::printf(" %7.0f", operations / 1e12 / Bench::seconds([&] { work(ends); }));
      } else {
        std::printf(" %7s", "-");
      }
      std::fflush(stdout);
    }
  }
  std::printf("\n");
}

// Rows [R, depth] with matrices [E, width, depth]; one product, two of the same rows, and two in one sum.
void measure_rows(const Bench& bench, const char* name, int64_t width, int64_t depth) {
  const Model& model = bench.model;
  const double operations = 2.0 * static_cast<double>(model.rows * width) * static_cast<double>(depth);
  const Tensor x = bench.e4m3({model.rows, depth}), x2 = bench.e4m3({model.rows, depth});
  const Tensor w = bench.e4m3({model.experts, width, depth}), w2 = bench.e4m3({model.experts, width, depth});
  const Tensor row_scales = bench.floats({model.rows}), column_scales = bench.floats({model.experts, width});
  const auto groups = [&](const Tensor& ends) {
    return kernels::Float8Groups{ends.const_data_ptr<int32_t>(), model.experts, model.rows, width, depth};
  };
  const auto out = [&] { return at::empty({model.rows, width}, bench.options(at::kBFloat16)); };
  print_product(
      bench, name, operations,
      [&](const Tensor& ends) {
        at::_scaled_grouped_mm(x, w.transpose(1, 2), row_scales, column_scales, ends, std::nullopt, std::nullopt,
                               at::kBFloat16, true);
      },
      [&](const Tensor& ends) {
        launch(kernels::GroupedFloat8Args{groups(ends), lines_of(x, row_scales), lines_of(w, column_scales),
                                          out().mutable_data_ptr()});
      });
  print_product(bench, "  two in one sum", 2 * operations, nullptr, [&](const Tensor& ends) {
    launch(kernels::GroupedFloat8Args{groups(ends), lines_of(x, row_scales), lines_of(w, column_scales),
                                      out().mutable_data_ptr(), lines_of(x2, row_scales), lines_of(w2, column_scales)});
  });
  if (width % 128 != 0) return;
  print_product(bench, "  two of the same rows", 2 * operations, nullptr, [&](const Tensor& ends) {
    launch(kernels::GroupedFloat8PairArgs{groups(ends), lines_of(x, row_scales), lines_of(w, column_scales),
                                          lines_of(w2, column_scales), out().mutable_data_ptr(),
                                          out().mutable_data_ptr()});
  });
}

void measure_weight_grad(const Bench& bench, const char* name, int64_t out, int64_t in) {
  const Model& model = bench.model;
  const double operations = 2.0 * static_cast<double>(model.rows * out) * static_cast<double>(in);
  const int64_t length = kernels::float8_line_length(model.rows, model.experts);
  const Tensor dy = bench.e4m3({out, length}), x = bench.e4m3({in, length});
  const Tensor dy_scales = bench.floats({model.experts, out}), x_scales = bench.floats({model.experts, in});
  const auto line_ends = [&](const Tensor& ends) { return make_expert_lines(1, model.rows, ends).ends_E; };
  print_product(
      bench, name, operations,
      [&](const Tensor& ends) {
        at::_scaled_grouped_mm(dy, x.t(), dy_scales.flatten(), x_scales.flatten(), line_ends(ends), std::nullopt,
                               std::nullopt, at::kBFloat16, true);
      },
      [&](const Tensor& ends) {
        const Tensor sums = at::empty({model.experts, out, in}, bench.options(at::kBFloat16));
        launch(kernels::GroupedFloat8WeightGradArgs{line_ends(ends).const_data_ptr<int32_t>(), model.experts, length,
                                                    out, in, lines_of(dy, dy_scales), lines_of(x, x_scales),
                                                    kernels::ElementType::kBFloat16, sums.mutable_data_ptr(), false});
      });
}

void measure_matrices(const Bench& bench, const char* name, int64_t out, int64_t in) {
  const Model& model = bench.model;
  const int64_t elements = model.experts * out * in;
  const Tensor x = bench.bf16({model.experts, out, in}), y = at::empty({elements}, bench.options(kE4m3));
  const Tensor scales = bench.floats({model.experts, std::max(out, in)});
  bench.print_bytes((std::string(name) + " by rows").c_str(), 3 * elements, [&] {
    launch(kernels::QuantizeRowsArgs{element_type(x), kernels::Float8Format::kE4m3, x.data_ptr(), in,
                                     model.experts * out, in, y.data_ptr(), scales.data_ptr<float>(), nullptr});
  });
  bench.print_bytes((std::string(name) + " by columns").c_str(), 3 * elements, [&] {
    launch(kernels::QuantizeMatricesArgs{element_type(x), x.data_ptr(), model.experts, out, in,
                                         static_cast<uint8_t*>(y.data_ptr()), scales.data_ptr<float>()});
  });
}

void measure_operands(const Bench& bench) {
  const Model& model = bench.model;
  constexpr int64_t kTokens = 16384;
  const int64_t top_k = std::max<int64_t>(model.rows / kTokens, 1), tokens = model.rows / top_k;
  const Tensor x = bench.bf16({tokens, model.dim});
  const auto [scores, chosen] = at::topk(at::randn({tokens, model.experts}, bench.options(at::kFloat)), top_k);
  const Dispatch dispatch = sort_by_expert(chosen.to(at::kInt), model.experts);
  const int64_t in_tokens = tokens * model.dim, in_rows = model.rows * model.dim, hidden = model.rows * model.hidden;
  bench.print_bytes("rows gathered in bf16", 2 * (in_tokens + in_rows), [&] { gather_rows(x, dispatch); });
  bench.print_bytes("tokens quantised, rows gathered", 4 * in_tokens + in_rows,
                    [&] { ExpertOperand(x, dispatch).rows(); });
  bench.print_bytes("lines from tokens", 2 * in_tokens + in_rows,
                    [&] { ExpertOperand(x, dispatch).lines(dispatch.ends_E); });
  const Tensor rows = gather_rows(x, dispatch);
  bench.print_bytes("lines from rows", 3 * in_rows, [&] { ExpertOperand(rows).lines(dispatch.ends_E); });
  const Tensors gated = {bench.bf16({model.rows, model.hidden}), bench.bf16({model.rows, model.hidden})};
  const Tensor grad = bench.bf16({model.rows, model.hidden}), weights = bench.floats({model.rows});
  const HiddenBias bias{Tensor(), dispatch.ends_E};
  bench.print_bytes("SwiGLU to float8", 5 * hidden, [&] { expert_activation(gated, bias, {}, true); });
  bench.print_bytes("SwiGLU's backward to float8, both ways", (6 + 2 + 6 + 3) * hidden,
                    [&] { expert_activation_backward(grad, gated, bias, weights, {}, true); });
  measure_matrices(bench, "w1", model.hidden, model.dim);
  measure_matrices(bench, "w2", model.dim, model.hidden);
}

void measure(const Bench& bench) {
  const Model& model = bench.model;
  std::printf("%-14s %-44s %7s %7s %7s %7s   TFLOP/s\n", "", "", "torch", "ours", "skewed", "ours");
  measure_rows(bench, "w1: rows x matrices", model.hidden, model.dim);
  measure_rows(bench, "w2: rows x matrices", model.dim, model.hidden);
  measure_weight_grad(bench, "w1: gradient of the weight", model.hidden, model.dim);
  measure_weight_grad(bench, "w2: gradient of the weight", model.dim, model.hidden);
  measure_operands(bench);
}

}  // namespace
}  // namespace titanium::ops

int main(int argc, char** argv) {
  using namespace titanium;
  if (gpu_device_count() == 0 || !ops::has_grouped_multiply()) {
    std::printf("bench_grouped_float8 needs a GPU of compute capability 9.0.\n");
    return 0;
  }
  const Device device(at::kCUDA, 0);
  const double copy_rate = ops::measured_copy_rate(device);
  std::printf("a copy moves %.2f TB/s\n", copy_rate / 1e12);
  for (const auto& model : ops::kModels) {
    if (argc < 2 || std::string(model.name).find(argv[1]) != std::string::npos)
      ops::measure({model, device, copy_rate});
  }
  return 0;
}
