// What tells weights from others.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "tests/support/test_folder.h"
#include "titanium/base/files/file.h"
#include "titanium/checkpoint/safetensors/writer.h"
#include "titanium/checkpoint/weights_source.h"

namespace titanium::checkpoint {
namespace {

Tensor matrix() { return at::arange(20, at::kFloat).reshape({5, 4}); }

std::vector<NamedTensor> weights() {
  return {{"a", matrix()}, {"b", at::tensor(2.5F)}, {"c", at::empty({0, 7}, at::kBFloat16)}};
}

std::string fingerprint_of(const std::vector<NamedTensor>& tensors) {
  const auto file = test::test_folder() / "model.safetensors";
  write_safetensors(file, tensors);
  return fingerprint(*open_weights(file));
}

TEST(WeightsFingerprint, DependsOnNamesDtypesShapesAndValues) {
  const std::string expected = fingerprint_of(weights());
  EXPECT_EQ(expected.size(), 16U);
  const auto changed = [](const std::function<void(std::vector<NamedTensor>&)>& change) {
    auto tensors = weights();
    change(tensors);
    return fingerprint_of(tensors);
  };
  EXPECT_EQ(changed([](auto&) {}), expected);
  EXPECT_NE(changed([](auto& all) { all[0].name = "d"; }), expected);
  EXPECT_NE(changed([](auto& all) { all[0].tensor = matrix().to(at::kHalf); }), expected);
  EXPECT_NE(changed([](auto& all) { all[0].tensor = matrix().reshape({4, 5}); }), expected);
  EXPECT_NE(changed([](auto& all) { all[1].tensor = at::tensor(2.25F); }), expected);
  for (const int64_t row : {0, 2, 4}) {
    EXPECT_NE(changed([&](auto& all) { all[0].tensor[row][3] += 1; }), expected) << row;
  }
}

TEST(WeightsFingerprint, IsThatOfTheSameWeightsInSeveralFiles) {
  const auto folder = test::test_folder() / "dealt";
  const auto all = weights();
  write_safetensors(folder / "1.safetensors", std::vector{all[2], all[0]});
  write_safetensors(folder / "2.safetensors", std::vector{all[1]});
  write_file_atomically(folder / "model.safetensors.index.json",
                        R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "1.safetensors"}})");
  EXPECT_EQ(fingerprint(*open_weights(folder)), fingerprint_of(all));
}

}  // namespace
}  // namespace titanium::checkpoint
