// A layer of experts on the GPU against the same layer on the CPU in fp32, with the choice of the CPU: rounding may not
// decide between two experts.
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "tests/gpu/gpu_test.h"
#include "titanium/ops/experts/mixture_of_experts.h"
#include "titanium/ops/kernel_choice.h"

namespace titanium::ops {
namespace {

using test::random_tensor;
using test::tolerance;
using GpuExperts = test::GpuTest;

constexpr int64_t kTokens = 301, kDim = 64, kExperts = 16;

struct Kind {
  const char* name;
  Dtype activations = at::kBFloat16;
  bool reference = false;  // ATen's operators instead of our kernels
  bool clamped = false;    // with biases
  bool weighs_inputs = false;
  int64_t top_k = 4;
  int64_t hidden = 48;
  // A clamp that acts on one device and not, by rounding, on the other would move a gradient as a whole: with bf16
  // there is none in reach.
  double clamp() const { return activations == at::kFloat ? 1.5 : 100; }
  double limit() const {
    if (activations == at::kFloat) return 20 * tolerance(at::kFloat);
    return (clamped ? 5 : 3) * tolerance(at::kBFloat16);
  }
};

// The layer on one device; both have the same values, exact in bf16.
struct Layer {
  explicit Layer(const Kind& kind) : kind(kind) {}

  Parameter& add(const Shape& shape, double scale, Device device, Dtype dtype, const Tensor& values) {
    parameters.push_back(std::make_unique<Parameter>("weight", shape));
    const c10::AutoGradMode no_grad(false);
    parameters.back()->materialize(dtype, device);
    parameters.back()->value.copy_(values * scale);
    return *parameters.back();
  }

  MixtureOfExpertsArgs args(const std::shared_ptr<KeptRouting>& routing) {
    MixtureOfExpertsArgs args{
        .norm = *parameters[0],
        .eps = 1e-5,
        .gate = *parameters[1],
        .load_E = at::zeros({kExperts}, parameters[0]->value.options().dtype(at::kLong)),
        .router = {.scores = ScoreFunction::kSoftmax, .top_k = kind.top_k, .normalise = kind.top_k > 1},
        .experts = {.down = parameters[3].get()},
        .weighs_inputs = kind.weighs_inputs,
        .kept_routing = routing};
    args.experts.hidden = {parameters[2].get()};
    if (kind.clamped) {
      args.gate_bias = parameters[4].get();
      args.experts.hidden_bias = parameters[5].get();
      args.experts.down_bias = parameters[6].get();
      args.experts.activation = {ActivationKind::kClampedSwiglu, kind.clamp()};
    } else {
      args.experts.hidden.push_back(parameters[4].get());
      args.shared.emplace(SharedExperts{*parameters[5], *parameters[6], *parameters[7]});
    }
    return args;
  }

  Kind kind;
  std::vector<std::unique_ptr<Parameter>> parameters;
};

std::vector<std::pair<Shape, double>> shapes(const Kind& kind) {
  const int64_t hidden = kind.hidden;
  std::vector<std::pair<Shape, double>> all = {{{kDim}, 1.0}, {{kExperts, kDim}, 0.25}};
  if (kind.clamped) {
    all.insert(all.end(), {{{kExperts, 2 * hidden, kDim}, 0.125},
                           {{kExperts, kDim, hidden}, 0.125},
                           {{kExperts}, 0.5},
                           {{kExperts, 2 * hidden}, 0.5},
                           {{kExperts, kDim}, 0.5}});
  } else {
    all.insert(all.end(), {{{kExperts, hidden, kDim}, 0.125},
                           {{kExperts, kDim, hidden}, 0.125},
                           {{kExperts, hidden, kDim}, 0.125},
                           {{2 * hidden, kDim}, 0.125},
                           {{kDim, 2 * hidden}, 0.125},
                           {{2 * hidden, kDim}, 0.125}});
  }
  return all;
}

void expect_same_layer(const Kind& kind, Device gpu) {
  SCOPED_TRACE(kind.name);
  set_reference_ops(kind.reference);
  Layer on_cpu(kind), on_gpu(kind);
  for (const auto& [shape, scale] : shapes(kind)) {
    const Tensor values = random_tensor(shape).to(at::kBFloat16).to(at::kFloat);
    on_cpu.add(shape, scale, at::kCPU, at::kFloat, values);
    on_gpu.add(shape, scale, gpu, at::kFloat, values.to(gpu));
  }
  const Tensor values = random_tensor({kTokens, kDim}).to(at::kBFloat16), dy = random_tensor({kTokens, kDim});
  const Tensor h_cpu = values.to(at::kFloat).requires_grad_(true);
  const Tensor h_gpu = values.to(gpu, kind.activations).requires_grad_(true);
  for (int pass = 0; pass < 2; ++pass) {  // the second one adds to the gradients
    const auto routing = std::make_shared<KeptRouting>(), same_routing = std::make_shared<KeptRouting>();
    // No token goes to the last expert: its gradients are zero.
    MixtureOfExpertsArgs args = on_cpu.args(routing);
    args.balance_E = at::zeros({kExperts});
    args.balance_E[kExperts - 1] = -100;
    const Tensor y_cpu = mixture_of_experts(h_cpu, args, ExpertSaves::kHidden);
    same_routing->routing = Routing{routing->routing->experts_TK.to(gpu), routing->routing->weights_TK.to(gpu),
                                    routing->routing->scores_TE.to(gpu)};
    const MixtureOfExpertsArgs gpu_args = on_gpu.args(same_routing);
    Tensor y_gpu;
    if (kind.activations == at::kBFloat16 && !kind.reference && !kind.clamped) {
      const ForbidGpuWaits nobody_waits;
      y_gpu = mixture_of_experts(h_gpu, gpu_args, ExpertSaves::kHidden);
    } else {
      y_gpu = mixture_of_experts(h_gpu, gpu_args, ExpertSaves::kNothing);
    }
    EXPECT_CLOSE(y_gpu, y_cpu, kind.limit());
    y_cpu.backward(dy);
    y_gpu.backward(dy.to(gpu, kind.activations));
  }
  EXPECT_CLOSE(h_gpu.grad(), h_cpu.grad(), kind.limit());
  for (size_t i = 0; i < on_cpu.parameters.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_CLOSE(on_gpu.parameters[i]->grad, on_cpu.parameters[i]->grad, kind.limit());
  }
  set_reference_ops(false);
}

enum class Experts { kBFloat16, kFloat8, kEmulatedFloat8 };

// The gradients of h and of all weights after two runs of a layer, so that the second adds to the first.
std::vector<Tensor> gradients(const Kind& kind, const std::vector<Tensor>& weights, const Tensor& h, const Tensor& dy,
                              Experts experts, ExpertSaves saves) {
  Layer layer(kind);
  const auto sizes = shapes(kind);
  for (size_t i = 0; i < weights.size(); ++i) {
    layer.add(sizes[i].first, sizes[i].second, h.device(), at::kBFloat16, weights[i]);
  }
  for (size_t i = 2; i < 5 && experts != Experts::kBFloat16; ++i) {
    layer.parameters[i]->float8 = std::make_unique<Float8Weight>();
    layer.parameters[i]->float8->recipe = Float8Recipe::kRowwise;
    layer.parameters[i]->float8->emulate = experts == Experts::kEmulatedFloat8;
  }
  const Tensor input = h.clone().requires_grad_(true);
  for (int pass = 0; pass < 2; ++pass) {
    MixtureOfExpertsArgs args = layer.args(nullptr);
    args.balance_E = at::zeros({kExperts}, h.options().dtype(at::kFloat));
    args.balance_E[kExperts - 1] = -100;  // no token goes to the last expert
    mixture_of_experts(input, args, saves).backward(dy);
  }
  std::vector<Tensor> found = {input.grad()};
  for (const auto& parameter : layer.parameters) found.push_back(parameter->grad);
  return found;
}

// Tensor cores keep 14 bits of a sum, so some numbers are rounded to other ones of float8 later, which is a sixteenth
// of them. All together that is far less than what float8 changes.
TEST_F(GpuExperts, Float8OnTensorCoresIsWhatItEmulates) {
  for (const int64_t hidden : {48, 64, 256}) {  // torch's kernels, ours, and ours in pairs
    for (const bool weighs_inputs : {false, true}) {
      for (const ExpertSaves saves : {ExpertSaves::kRows, ExpertSaves::kHidden, ExpertSaves::kNothing}) {
        SCOPED_TRACE(testing::Message() << hidden << " hidden columns, " << weighs_inputs);
        const Kind kind{"float8", at::kBFloat16, false, false, weighs_inputs, 4, hidden};
        const auto random = [&](const Shape& shape) { return random_tensor(shape).to(gpu_, at::kBFloat16); };
        std::vector<Tensor> weights;
        for (const auto& [shape, scale] : shapes(kind)) weights.push_back(random(shape));
        const Tensor h = random({kTokens, kDim}), dy = random({kTokens, kDim});
        const auto found = gradients(kind, weights, h, dy, Experts::kFloat8, saves);
        const auto emulated = gradients(kind, weights, h, dy, Experts::kEmulatedFloat8, saves);
        const auto plain = gradients(kind, weights, h, dy, Experts::kBFloat16, saves);
        for (size_t i = 0; i < found.size(); ++i) {
          SCOPED_TRACE(i);
          const double error = test::mean_error(found[i], emulated[i]);
          EXPECT_LT(error, 2e-2);
          const bool of_experts = i >= 3 && i < 6;
          if (of_experts) {
            EXPECT_LT(2 * error, test::mean_error(found[i], plain[i]));
          }
        }
      }
    }
  }
}

TEST_F(GpuExperts, ComputeWhatTheCpuComputes) {
  for (const bool reference : {false, true}) {
    expect_same_layer({"bfloat16", at::kBFloat16, reference}, gpu_);
    expect_same_layer({"float32", at::kFloat, reference}, gpu_);
    expect_same_layer({"weighed inputs", at::kBFloat16, reference, false, true, 1}, gpu_);
    expect_same_layer({"clamped", at::kBFloat16, reference, true}, gpu_);
    expect_same_layer({"clamped in float32", at::kFloat, reference, true}, gpu_);
  }
}

}  // namespace
}  // namespace titanium::ops
