// The first half of latent attention and what stands between rope and attention: the GPU against the CPU in fp32, from
// the same inputs, which bf16 holds exactly.
#include "titanium/ops/latent_qkv.h"

#include <ATen/ops/sum.h>
#include <c10/core/GradMode.h>

#include <map>

#include "tests/gpu/gpu_test.h"
#include "titanium/ops/linear/linear.h"
#include "titanium/ops/scale_heads.h"

namespace titanium::ops {
namespace {

using test::random_tensor;
using GpuLatentQkv = test::GpuTest;

constexpr int64_t kBatch = 2, kTokens = 64, kDim = 256, kHeads = 4, kNope = 128, kRope = 64, kValue = 128, kRank = 96,
                  kQueryRank = 80;
constexpr double kEps = 1e-5;

using Values = std::map<std::string, Tensor>;

Values random_values(bool latent_queries) {
  Values values;
  const auto make = [&](const char* name, const Shape& shape, double scale) {
    values[name] = (random_tensor(shape) * scale).to(at::kBFloat16).to(at::kFloat);
  };
  make("norm", {kDim}, 1);
  make("wq_a", {kQueryRank, kDim}, 0.1);
  make("q_norm", {kQueryRank}, 1);
  make("wq", {kHeads * (kNope + kRope), latent_queries ? kQueryRank : kDim}, 0.1);
  make("wkv_a", {kRank + kRope, kDim}, 0.1);
  make("kv_norm", {kRank}, 1);
  make("wkv_b", {kHeads * (kNope + kValue), kRank}, 0.1);
  make("x", {kBatch * kTokens, kDim}, 1);
  make("q_grad", {kBatch, kTokens, kHeads, kNope + kRope}, 1);
  make("k_grad", {kBatch, kTokens, kHeads, kNope + kRope}, 1);
  make("v_grad", {kBatch, kTokens, kHeads, kValue}, 1);
  return values;
}

// Outputs and all gradients, by name.
Values results(const Values& values, bool latent_queries, Device device, Dtype dtype,
               const std::vector<int64_t>& positions = {}) {
  std::map<std::string, std::unique_ptr<Parameter>> parameters;
  for (const char* name : {"norm", "wq_a", "q_norm", "wq", "wkv_a", "kv_norm", "wkv_b"}) {
    const Tensor& value = values.at(name);
    parameters[name] = std::make_unique<Parameter>(name, value.sizes().vec());
    parameters[name]->materialize(at::kFloat, device);
    const c10::AutoGradMode no_grad(false);
    parameters[name]->value.copy_(value);
  }
  std::optional<LatentQueries> queries;
  if (latent_queries) queries.emplace(LatentQueries{*parameters["wq_a"], *parameters["q_norm"]});
  const Tensor x = values.at("x").to(device, dtype, /*non_blocking=*/false, /*copy=*/true).requires_grad_(true);
  Tensor table = rope_table(kRope, kTokens, 10000, std::nullopt, device);
  if (!positions.empty()) table = test::rows_at(table, positions, kTokens);
  const Qkv qkv = latent_qkv(x, {.norm = *parameters["norm"],
                                 .eps = kEps,
                                 .latent_queries = queries,
                                 .wq = *parameters["wq"],
                                 .wkv_a = *parameters["wkv_a"],
                                 .kv_norm = *parameters["kv_norm"],
                                 .wkv_b = *parameters["wkv_b"],
                                 .latent_eps = kEps,
                                 .nope_dim = kNope,
                                 .value_dim = kValue,
                                 .rope_table = table});
  const auto weighted = [&](const Tensor& y, const char* grad) {
    return at::sum(y * values.at(grad).to(device, dtype), at::kFloat);
  };
  (weighted(qkv.q_BSHE, "q_grad") + weighted(qkv.k_BSKE, "k_grad") + weighted(qkv.v_BSKE, "v_grad")).backward();
  Values found = {{"q", qkv.q_BSHE.detach()}, {"k", qkv.k_BSKE.detach()}, {"v", qkv.v_BSKE.detach()}, {"x", x.grad()}};
  for (const auto& [name, parameter] : parameters) {
    if (parameter->grad.defined()) found[name] = parameter->grad;
  }
  return found;
}

void check_latent_qkv(Device gpu, const std::vector<int64_t>& positions) {
  for (const bool latent_queries : {false, true}) {
    const Values values = random_values(latent_queries);
    const Values expected = results(values, latent_queries, at::kCPU, at::kFloat, positions);
    for (const Dtype dtype : {at::kBFloat16, at::kFloat}) {
      const Values found = results(values, latent_queries, gpu, dtype, positions);
      EXPECT_EQ(found.size(), expected.size());
      for (const auto& [name, tensor] : expected) {
        SCOPED_TRACE(name);
        EXPECT_CLOSE(found.at(name), tensor, (dtype == at::kFloat ? 50 : 2) * test::tolerance(dtype));
      }
    }
  }
}

TEST_F(GpuLatentQkv, MatchesTheCpu) { check_latent_qkv(gpu_, {}); }

TEST_F(GpuLatentQkv, MatchesTheCpuWithRowsForEachToken) {
  std::vector<int64_t> positions;
  for (int64_t token = 0; token < kBatch * kTokens; ++token) {
    positions.push_back(token % kTokens % (token < kTokens ? 13 : 40));
  }
  check_latent_qkv(gpu_, positions);
}

TEST_F(GpuLatentQkv, NormalisedHeadsScaledTokensAndBiasesMatchTheCpu) {
  const Tensor x = random_tensor({2, 9, 4, 64}).to(at::kBFloat16).to(at::kFloat), factors = random_tensor({9});
  const auto run = [&](Device device, Dtype dtype) -> Tensors {
    const Tensor leaf = x.to(device, dtype, /*non_blocking=*/false, /*copy=*/true).requires_grad_(true);
    const Tensor y = scale_tokens(normalise_heads(leaf, kEps), factors.to(device));
    y.backward(x.flip(1).to(device, dtype));
    Parameter weight("w.weight", {32, 64}), bias("w.bias", {32});
    for (Parameter* parameter : {&weight, &bias}) {
      parameter->materialize(at::kFloat, device);
      const c10::AutoGradMode no_grad(false);
      parameter->value.fill_(0.25);
    }
    const Tensor rows = leaf.detach().flatten(0, 2).requires_grad_(true), residual = rows.detach().narrow(1, 0, 32);
    const Tensor out = linear_residual(rows, weight, residual.contiguous(), all_rows_here(), &bias);
    out.backward(residual.contiguous());
    return {y.detach(), leaf.grad(), out.detach(), bias.grad};
  };
  const Tensors expected = run(at::kCPU, at::kFloat), found = run(gpu_, at::kBFloat16);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_CLOSE(found[i], expected[i], 2 * test::tolerance(at::kBFloat16));
}

}  // namespace
}  // namespace titanium::ops
