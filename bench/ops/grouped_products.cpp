// Grouped products of experts at the sizes of four models, sustained: forward, gradient of the rows and gradient of the
// weights, with balanced and with skewed counts of rows: torch's kernels, ours (kernels/grouped_multiply.h) where the
// GPU has them, and one dense product of as many operations. TFLOP/s of every candidate stand in one line, so that
// kernels are compared in the same run.
//
//   bench_grouped_products [part of a model's name]      without a GPU: small sizes on the CPU
#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include <cstdio>

#include "bench/ops/expert_models.h"
#include "titanium/ops/gpu_kernels.h"

namespace titanium::ops {
namespace {

// One layer of all experts: rows [R, in], weights [E, out, in].
struct Operands {
  Tensor x, weight, grad, dense_weight;
  Operands(const Model& model, int64_t out, int64_t in, const at::TensorOptions& options)
      : x(at::randn({model.rows, in}, options)),
        weight(at::randn({model.experts, out, in}, options)),
        grad(at::randn({model.rows, out}, options)),
        dense_weight(weight[0]) {}
};

using Grouped = std::function<void(const Operands&, const Tensor& ends)>;
struct Product {
  const char* name;
  Grouped grouped, ours;
  std::function<void(const Operands&)> dense;
};

kernels::ExpertGroups groups_of(const Operands& o, const Tensor& ends) {
  return {ends.const_data_ptr<int32_t>(), ends.size(0), o.x.size(0), o.weight.size(1), o.weight.size(2)};
}
void our_forward(const Operands& o, const Tensor& ends) {
  const Tensor y = at::empty_like(o.grad);
  launch(kernels::GroupedForwardArgs{groups_of(o, ends), o.x.data_ptr(), o.weight.data_ptr(), y.data_ptr()});
}
void our_input_grad(const Operands& o, const Tensor& ends) {
  const Tensor dx = at::empty_like(o.x);
  launch(kernels::GroupedInputGradArgs{groups_of(o, ends), o.grad.data_ptr(), o.weight.data_ptr(), nullptr, nullptr,
                                       dx.data_ptr()});
}
void our_weight_grad(const Operands& o, const Tensor& ends) {
  const Tensor sums = at::empty_like(o.weight);
  launch(kernels::GroupedWeightGradArgs{groups_of(o, ends), o.grad.data_ptr(), o.x.data_ptr(),
                                        kernels::ElementType::kBFloat16, sums.data_ptr(), false});
}

const std::vector<Product> kProducts = {
    {"forward", [](const Operands& o, const Tensor& ends) { at::_grouped_mm(o.x, o.weight.transpose(1, 2), ends); },
     our_forward, [](const Operands& o) { at::mm(o.x, o.dense_weight.t()); }},
    {"gradient of rows", [](const Operands& o, const Tensor& ends) { at::_grouped_mm(o.grad, o.weight, ends); },
     our_input_grad, [](const Operands& o) { at::mm(o.grad, o.dense_weight); }},
    {"gradient of weights", [](const Operands& o, const Tensor& ends) { at::_grouped_mm(o.grad.t(), o.x, ends); },
     our_weight_grad, [](const Operands& o) { at::mm(o.grad.t(), o.x); }}};

void measure(const Model& model, Device device) {
  const bool cuda = device.is_cuda();
  const auto options = at::TensorOptions(at::kBFloat16).device(device);
  for (const auto& [layer, out, in] :
       {std::tuple("w1 and w3", 2 * model.hidden, model.dim), std::tuple("w2", model.dim, model.hidden)}) {
    const Operands operands(model, out, in, options);
    const double operations = 2.0 * static_cast<double>(model.rows) * static_cast<double>(out * in) / 1e12;
    for (const Product& product : kProducts) {
      std::printf("%-14s %-10s %-20s", model.name, layer, product.name);
      for (const bool skewed : {false, true}) {
        const Tensor ends = ends_of(model, skewed, device);
        std::printf(" %9.4g", operations / seconds_of([&] { product.grouped(operands, ends); }, cuda));
        if (!cuda || !has_grouped_multiply()) continue;
        std::printf(" %9.4g", operations / seconds_of([&] { product.ours(operands, ends); }, cuda));
      }
      std::printf(" %9.4g\n", operations / seconds_of([&] { product.dense(operands); }, cuda));
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace titanium::ops

int main(int argc, char** argv) {
  using namespace titanium;
  if (gpu_device_count() == 0) {
    std::printf("%-46s %9s %9s %9s   TFLOP/s\n", "", "balanced", "skewed", "dense");
    ops::measure(ops::kSmall, at::kCPU);
    return 0;
  }
  std::printf("%-46s %9s %9s %9s %9s %9s   TFLOP/s\n", "", "balanced", "ours", "skewed", "ours", "dense");
  for (const auto& model : ops::kModels) {
    if (argc < 2 || std::string(model.name).find(argv[1]) != std::string::npos)
      ops::measure(model, Device(at::kCUDA, 0));
  }
  return 0;
}
