// Computes float8 linear layers for parity/float8.py.
//
//   float8_driver IN.safetensors OUT.safetensors
//
// IN holds x [T, in], weight [out, in] and grad [T, out] of each case, as CASE/x and so on, where CASE begins with the
// recipe and a slash. OUT gets CASE/output, grad_input and grad_weight, and the weight as the two products take it:
// CASE/weight.output.data, .scale, CASE/weight.grad_input.data, .scale.
//
// Where there is CASE/ends, the weight is that of experts, [experts, out, in], and only the three products come out.
#include <iostream>

#include "titanium/base/error.h"
#include "titanium/checkpoint/safetensors/reader.h"
#include "titanium/checkpoint/safetensors/writer.h"
#include "titanium/ops/experts/grouped_linear.h"
#include "titanium/ops/linear/linear.h"

namespace titanium::ops {
namespace {

Float8Recipe parse_recipe(const std::string& name) {
  if (name == "tensorwise") return Float8Recipe::kTensorwise;
  if (name == "rowwise") return Float8Recipe::kRowwise;
  if (name == "mx") return Float8Recipe::kMx;
  TI_CHECK(name == "rowwise_with_gw_hp", "no recipe {}", name);
  return Float8Recipe::kRowwiseWithGwHp;
}

void run_experts(const checkpoint::SafetensorsReader& reader, const std::string& prefix, Parameter& weight,
                 std::vector<checkpoint::NamedTensor>& results) {
  const Tensor x = reader.tensor(prefix + "x"), grad = reader.tensor(prefix + "grad"),
               ends = reader.tensor(prefix + "ends");
  accumulate_grouped_weight_grad(grad, x, weight, ends);
  results.push_back({prefix + "output", grouped_forward(x, weight, ends)});
  results.push_back({prefix + "grad_input", grouped_input_grad(grad, weight, ends)});
  results.push_back({prefix + "grad_weight", weight.grad});
}

void run_case(const checkpoint::SafetensorsReader& reader, const std::string& prefix,
              std::vector<checkpoint::NamedTensor>& results) {
  const Tensor x = reader.tensor(prefix + "x").requires_grad_(true), value = reader.tensor(prefix + "weight");
  Parameter weight("layer.weight", value.sizes().vec());
  weight.materialize(value.scalar_type(), at::kCPU);
  weight.value.detach().copy_(value);
  weight.float8 = std::make_unique<Float8Weight>();
  weight.float8->recipe = parse_recipe(prefix.substr(0, prefix.find('/')));
  if (value.dim() == 3) return run_experts(reader, prefix, weight, results);
  const Tensor output = linear(x, weight);
  output.backward(reader.tensor(prefix + "grad"));
  const Float8Weight& float8 = *weight.float8;
  for (const auto& [name, tensor] : {std::pair{"output", output.detach()},
                                     {"grad_input", x.grad()},
                                     {"grad_weight", weight.grad},
                                     {"weight.output.data", float8.for_output.data},
                                     {"weight.output.scale", float8.for_output.scale},
                                     {"weight.grad_input.data", float8.for_input_grad.data.t().contiguous()},
                                     {"weight.grad_input.scale", float8.for_input_grad.scale.t().contiguous()}}) {
    results.push_back({prefix + name, tensor});
  }
}

void run(const std::string& in, const std::string& out) {
  const checkpoint::SafetensorsReader reader(in);
  std::vector<checkpoint::NamedTensor> results;
  for (const std::string& name : reader.names()) {
    if (name.ends_with("/x")) run_case(reader, name.substr(0, name.size() - 1), results);
  }
  checkpoint::write_safetensors(out, results);
}

}  // namespace
}  // namespace titanium::ops

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: see the head of float8_driver.cpp\n";
    return 2;
  }
  titanium::ops::run(argv[1], argv[2]);
  return 0;
}
