// Computes a float8 linear layer for parity/float8.py.
//
//   float8_driver IN.safetensors OUT.safetensors RECIPE
//
// IN holds x [T, in], weight [out, in] and grad [T, out]; OUT gets output, grad_input and grad_weight, and the weight
// as the two products take it: weight.output.data, .scale, weight.grad_input.data, .scale.
#include <iostream>

#include "titanium/base/error.h"
#include "titanium/checkpoint/safetensors_reader.h"
#include "titanium/checkpoint/safetensors_writer.h"
#include "titanium/ops/linear.h"

namespace titanium::ops {
namespace {

Float8Recipe parse_recipe(const std::string& name) {
  if (name == "tensorwise") return Float8Recipe::kTensorwise;
  if (name == "rowwise") return Float8Recipe::kRowwise;
  TI_CHECK(name == "rowwise_with_gw_hp", "no recipe {}", name);
  return Float8Recipe::kRowwiseWithGwHp;
}

void run(const std::string& in, const std::string& out, const std::string& recipe) {
  const checkpoint::SafetensorsReader reader(in);
  const Tensor x = reader.tensor("x").requires_grad_(true), value = reader.tensor("weight");
  Parameter weight("layer.weight", value.sizes().vec());
  weight.materialize(value.scalar_type(), at::kCPU);
  weight.value.detach().copy_(value);
  weight.float8 = std::make_unique<Float8Weight>();
  weight.float8->recipe = parse_recipe(recipe);
  const Tensor output = linear(x, weight);
  output.backward(reader.tensor("grad"));
  const Float8Weight& float8 = *weight.float8;
  const std::vector<checkpoint::NamedTensor> results = {{"output", output.detach()},
                                                        {"grad_input", x.grad()},
                                                        {"grad_weight", weight.grad},
                                                        {"weight.output.data", float8.for_output.data},
                                                        {"weight.output.scale", float8.for_output.scale},
                                                        {"weight.grad_input.data", float8.for_input_grad.data},
                                                        {"weight.grad_input.scale", float8.for_input_grad.scale}};
  checkpoint::write_safetensors(out, results);
}

}  // namespace
}  // namespace titanium::ops

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: see the head of float8_driver.cpp\n";
    return 2;
  }
  titanium::ops::run(argv[1], argv[2], argv[3]);
  return 0;
}
