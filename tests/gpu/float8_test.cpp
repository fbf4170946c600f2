// Products of float8 on tensor cores against the emulation on the CPU, and training with both.
#include "titanium/ops/linear/float8.h"

#include <ATen/ops/equal.h>

#include "tests/gpu/gpu_test.h"
#include "titanium/ops/linear/linear.h"
#include "titanium/train/train_step.h"

namespace titanium::ops {
namespace {

using test::random_tensor;
using GpuFloat8 = test::GpuTest;
constexpr Float8Recipe kRecipes[] = {Float8Recipe::kTensorwise, Float8Recipe::kRowwise, Float8Recipe::kRowwiseWithGwHp};

std::unique_ptr<Parameter> make_weight(const Tensor& value, Float8Recipe recipe, Device device) {
  auto weight = std::make_unique<Parameter>("w.weight", value.sizes().vec());
  weight->materialize(value.scalar_type(), device);
  weight->value.detach().copy_(value);
  weight->float8 = std::make_unique<Float8Weight>();
  weight->float8->recipe = recipe;
  return weight;
}

// Output, and the gradients of input and weight, each made twice so that the second is added to the first.
std::vector<Tensor> products(const Tensor& x, const Tensor& grad, Parameter& weight) {
  const LinearInput input(x);
  const LinearGrad output_grad(grad);
  std::vector<Tensor> found = {linear_forward(input, weight), linear_input_grad(output_grad, weight)};
  add_input_grad(found[1], output_grad, weight);
  for (int i = 0; i < 2; ++i) accumulate_weight_grad(output_grad, input, weight);
  found.push_back(weight.grad);
  return found;
}

TEST_F(GpuFloat8, ProductsAreThoseOfTheEmulation) {
  for (const Float8Recipe recipe : kRecipes) {
    for (const Dtype dtype : {at::kBFloat16, at::kFloat}) {
      for (const int64_t tokens : {256, 48, 39}) {  // 39: what tensor cores do not take
        for (const Dtype stored : {at::kFloat, at::kBFloat16}) {
          SCOPED_TRACE(testing::Message()
                       << static_cast<int>(recipe) << " " << dtype << " " << tokens << " " << stored);
          const Tensor x = random_tensor({tokens, 160}).to(dtype), grad = random_tensor({tokens, 96}).to(dtype) * 1e-3;
          const Tensor w = random_tensor({96, 160}).to(stored);
          const auto on_gpu = make_weight(w, recipe, gpu_), on_cpu = make_weight(w, recipe, at::kCPU);
          const auto found = products(x.to(gpu_), grad.to(gpu_), *on_gpu), expected = products(x, grad, *on_cpu);
          for (size_t i = 0; i < found.size(); ++i) {
            EXPECT_EQ(found[i].scalar_type(), expected[i].scalar_type());
            // Tensor cores add up with fewer bits than fp32.
            EXPECT_CLOSE(found[i], expected[i], 2e-2);
          }
        }
      }
    }
  }
}

TEST_F(GpuFloat8, OperandsAreQuantisedToTheBitsOfTheEmulation) {
  for (const Float8Recipe recipe : kRecipes) {
    const auto weight = make_weight(random_tensor({96, 160}), recipe, gpu_);
    const auto emulated = make_weight(random_tensor({96, 160}), recipe, gpu_);
    emulated->float8->emulate = true;
    const Tensor x = random_tensor({64, 160}).to(gpu_, at::kBFloat16);
    const LinearInput ours(x), theirs(x);
    const LinearGrad our_grad(x), their_grad(x);
    for (const auto& [a, b] :
         {std::pair<const LinearOperand&, const LinearOperand&>{ours, theirs}, {our_grad, their_grad}}) {
      for (const bool columns : {false, true}) {
        const Float8Tensor& found = columns ? a.columns(*weight->float8) : a.rows(*weight->float8);
        const Float8Tensor& expected = columns ? b.columns(*emulated->float8) : b.rows(*emulated->float8);
        EXPECT_TRUE(at::equal(found.data.view(at::kByte), expected.data.contiguous().view(at::kByte)));
        EXPECT_TRUE(at::equal(reciprocal_scale(found), reciprocal_scale(expected)));
      }
    }
  }
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] / b[i] - 1));
  return largest;
}

std::vector<double> losses_of(const JobConfig& config, Device device) {
  train::TrainState run = train::build_train_state(config, device);
  std::vector<double> losses;
  for (int i = 0; i < 10; ++i) losses.push_back(train::train_step(run)->loss.item<double>());
  return losses;
}

// Near the emulation is not enough, because bf16 is not far away either: it has to be several times nearer.
TEST_F(GpuFloat8, TrainingFollowsTheEmulation) {
  for (const char* recipe : {"tensorwise", "rowwise", "rowwise_with_gw_hp"}) {
    for (const char* mode : {"none", "selective", "full"}) {
      JobConfig config;
      config.training.local_batch_size = 2;
      config.training.seq_len = 256;
      config.lr_scheduler.warmup_steps = 2;
      config.metrics.enable_jsonl = false;
      config.activation_checkpoint.mode = mode;
      config.activation_checkpoint.selective_ac_option = "op";
      const std::vector<double> bf16 = losses_of(config, gpu_);
      config.model.converters = {"quantize.linear.float8"};
      config.quantize.linear.float8.filter_fqns = {"output"};
      if (std::string_view(recipe) != "tensorwise") config.quantize.linear.float8.recipe_name = recipe;
      const std::vector<double> found = losses_of(config, gpu_);
      config.quantize.linear.float8.emulate = true;
      const std::vector<double> emulation = losses_of(config, gpu_);
      EXPECT_LT(largest_difference(found, emulation), 0.5 * largest_difference(bf16, emulation))
          << recipe << " " << mode;
    }
  }
}

}  // namespace
}  // namespace titanium::ops
