#include "titanium/checkpoint/state_dict.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include "tests/support/test_folder.h"

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

}  // namespace
}  // namespace titanium::checkpoint
