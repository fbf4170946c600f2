#include "titanium/checkpoint/state_dict.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include "tests/support/test_folder.h"
#include "tests/support/toy_experts.h"
#include "titanium/ops/init.h"

namespace titanium::checkpoint {
namespace {

using test::test_folder;

// A parameter, a buffer that checkpoints hold and one that they do not.
struct Balanced : nn::Module {
  explicit Balanced(const std::string& bias_name = "bias", bool persistent = true)
      : weight("weight", {4, 3}),
        bias(bias_name, {5}, at::kFloat, persistent),
        routed("routed", {5}, at::kLong, /*is_persistent=*/false) {
    add(weight);
    add(bias);
    add(routed);
    materialize(at::kFloat, at::kCPU);
    weight.value.detach().copy_(at::arange(12).view({4, 3}));
    bias.value.copy_(at::arange(5) * 0.5);
    routed.value.fill_(7);
  }
  Parameter weight;
  nn::Buffer bias, routed;
};

// What all ranks of a layout write of the same module.
std::vector<StateDict> states_of(const nn::Module& model, const parallel::ParallelDims& dims,
                                 std::optional<Dtype> dtype = std::nullopt) {
  std::vector<StateDict> states(static_cast<size_t>(dims.world()));
  for (size_t rank = 0; rank < states.size(); ++rank) {
    add_model(states[rank], model, Shares(dims, static_cast<int>(rank)), dtype);
  }
  return states;
}

std::filesystem::path save(const std::vector<StateDict>& states) {
  const std::filesystem::path folder = test_folder();
  std::vector<DcpPart> parts;
  for (size_t rank = 0; rank < states.size(); ++rank) {
    parts.push_back(write_dcp_files(folder, static_cast<int>(rank), states[rank].tensors, states[rank].objects));
  }
  publish_dcp(folder, parts, {});
  return folder;
}

std::string error_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(Buffers, AreAllocatedWithTheParametersInTheirOwnDtype) {
  Balanced model;
  model.materialize(at::kBFloat16, at::kCPU);
  EXPECT_EQ(model.weight.value.scalar_type(), at::kBFloat16);
  EXPECT_EQ(model.bias.value.scalar_type(), at::kFloat);
  EXPECT_TRUE(model.bias.value.equal(at::full({5}, 0.0)));
  EXPECT_EQ(model.buffers().size(), 2U);
  EXPECT_EQ(model.persistent_buffers(), std::vector<nn::Buffer*>{&model.bias});
}

TEST(Buffers, PersistentOnesAreSavedOnceAndLoaded) {
  const Balanced saved;
  const std::vector<StateDict> states = states_of(saved, {.dp_replicate = 2, .tp = 2});
  int64_t biases = 0;
  for (const StateDict& state : states) {
    for (const DcpTensorItem& item : state.tensors) {
      EXPECT_NE(item.name, "routed");
      biases += item.name == "bias" ? 1 : 0;
    }
  }
  EXPECT_EQ(biases, 1);

  Balanced loaded;
  loaded.bias.value.zero_();
  loaded.routed.value.zero_();
  load_model(DcpReader(save(states)), loaded, loaded);
  EXPECT_TRUE(loaded.bias.value.equal(saved.bias.value));
  EXPECT_TRUE(loaded.weight.value.equal(saved.weight.value));
  EXPECT_EQ(loaded.routed.value.sum().item<int64_t>(), 0);
}

TEST(Buffers, EveryPipelineStageSavesItsOwn) {
  const Balanced model;
  const std::vector<StateDict> states = states_of(model, {.pp = 2, .tp = 2});
  const auto has_bias = [&](size_t rank) {
    return std::ranges::any_of(states[rank].tensors, [](const auto& item) { return item.name == "bias"; });
  };
  EXPECT_TRUE(has_bias(0));
  EXPECT_FALSE(has_bias(1));
  EXPECT_TRUE(has_bias(2));  // the first rank of the second stage
  EXPECT_FALSE(has_bias(3));
}

TEST(Buffers, AreExportedInTheDtypeOfTheExport) {
  const Balanced model;
  const std::vector<StateDict> states = states_of(model, {}, at::kBFloat16);
  EXPECT_EQ(states[0].tensors.size(), 2U);
  for (const DcpTensorItem& item : states[0].tensors) {
    EXPECT_EQ(item.tensor.scalar_type(), at::kBFloat16) << item.name;
  }
}

TEST(Buffers, PersistentOnesArePartOfTheNameCheck) {
  const DcpReader reader(save(states_of(Balanced(), {})));
  Balanced other("balance");
  EXPECT_NE(
      error_of([&] { load_model(reader, other, other); }).find("lacks 1 of the model's 2 tensors, such as \"balance\""),
      std::string::npos);
  Balanced without("bias", /*persistent=*/false);
  EXPECT_NE(error_of([&] {
              load_model(reader, without, without);
            }).find("has 1 tensors that the model does not have, such as \"bias\". Check model.name and model.flavor"),
            std::string::npos);
}

const std::vector<std::pair<const char*, parallel::ParallelDims>>& expert_layouts() {
  static const std::vector<std::pair<const char*, parallel::ParallelDims>> all = {
      {"one", {}},
      {"fsdp2 tp2 ep2", {.dp_shard = 2, .tp = 2, .ep = 2}},
      {"fsdp4 tp2 ep2 etp2", {.dp_shard = 4, .tp = 2, .ep = 2, .etp = 2}},
      {"tp4 ep2", {.tp = 4, .ep = 2}},
      {"hsdp2x2 tp2 ep2 etp2", {.dp_replicate = 2, .dp_shard = 2, .tp = 2, .ep = 2, .etp = 2}},
  };
  return all;
}

// The toy of every rank, empty or with its initial weights.
std::vector<std::unique_ptr<test::ToyExperts>> build_ranks(const parallel::ParallelDims& dims, bool initial) {
  std::vector<std::unique_ptr<test::ToyExperts>> ranks;
  for (int rank = 0; rank < dims.world(); ++rank) {
    auto toy = std::make_unique<test::ToyExperts>();
    toy->up.shard_dim = dims.etp > 1 ? 1 : 0;
    place(*toy, dims, rank);
    toy->materialize(at::kFloat, at::kCPU);
    for (Parameter* parameter : toy->parameters()) {
      initial ? ops::init_normal(*parameter, /*seed=*/3, /*std=*/1.0) : ops::init_constant(*parameter, NAN);
    }
    ranks.push_back(std::move(toy));
  }
  return ranks;
}

TEST(StateDict, ExpertsAreSavedWholeFromAnyLayoutAndLoadedInAnyOther) {
  for (const auto& [from, dims] : expert_layouts()) {
    std::vector<StateDict> states;
    std::map<std::string, int64_t> saved;
    for (const auto& toy : build_ranks(dims, /*initial=*/true)) {
      const Shares shares(dims, static_cast<int>(states.size()));
      add_model(states.emplace_back(), *toy, shares);
      for (DcpTensorItem& item : states.back().tensors) {
        saved[item.name] += item.tensor.numel();
        item.tensor = item.tensor.clone();
      }
    }
    const test::ToyExperts whole;
    for (const Parameter* parameter : whole.parameters()) {
      EXPECT_EQ(saved[parameter->fqn], volume(parameter->global_shape)) << parameter->fqn << " from " << from;
    }
    const DcpReader reader(save(states));
    for (const auto& [to, other] : expert_layouts()) {
      const auto expected = build_ranks(other, /*initial=*/true), loaded = build_ranks(other, /*initial=*/false);
      for (size_t rank = 0; rank < loaded.size(); ++rank) {
        load_model(reader, *loaded[rank], *loaded[rank]);
        for (size_t i = 0; i < loaded[rank]->parameters().size(); ++i) {
          const Parameter& parameter = *loaded[rank]->parameters()[i];
          EXPECT_TRUE(parameter.value.equal(expected[rank]->parameters()[i]->value))
              << parameter.fqn << " from " << from << " to " << to;
        }
      }
    }
  }
}

// As if the parameters were large, so that those who hold the same cut it among themselves.
TEST(StateDict, LargeExpertsAreCutAmongTheirHolders) {
  for (const auto& [name, dims] : expert_layouts()) {
    std::map<std::string, Tensor> written;
    const test::ToyExperts whole;
    for (const Parameter* parameter : whole.parameters()) {
      written[parameter->fqn] = at::zeros(parameter->global_shape);
    }
    const auto ranks = build_ranks(dims, /*initial=*/true);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      for (const Parameter* parameter : ranks[rank]->parameters()) {
        const auto share = Shares(dims, static_cast<int>(rank)).of(*parameter, /*turn=*/0, /*bytes=*/1 << 30);
        if (share) box_of(written[parameter->fqn], *share).add_(1);
      }
    }
    for (const auto& [fqn, times] : written) {
      EXPECT_TRUE(times.equal(at::ones_like(times))) << fqn << " in " << name;
    }
  }
}

}  // namespace
}  // namespace titanium::checkpoint
