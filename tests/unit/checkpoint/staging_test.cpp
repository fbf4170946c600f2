// The copy that is written in the background does not change with the run.
#include "titanium/checkpoint/staging.h"

#include <ATen/ops/equal.h>

#include "tests/support/tensors.h"

namespace titanium::checkpoint {
namespace {

DcpTensorItem item(const std::string& name, const Tensor& tensor) {
  const Shape shape = tensor.sizes().vec();
  return {
      .name = name, .global_shape = shape, .box = {.offset = Shape(shape.size()), .shape = shape}, .tensor = tensor};
}

TEST(Staging, KeepsTheValuesOfItsMomentWhileTheRunGoesOn) {
  const Tensor table = test::random_tensor({6, 10});
  StateDict live;
  live.tensors = {item("whole", test::random_tensor({5, 7})), item("half", test::random_tensor({9}, at::kBFloat16)),
                  item("view", table.narrow(1, 2, 3)), item("count", test::random_tensor({}))};
  add_object(live, "train_state", "step", int64_t{3});
  std::vector<Tensor> before;
  for (const DcpTensorItem& item : live.tensors) before.push_back(item.tensor.clone());

  Staging staging(at::kCPU, live);
  const StateDict staged = staging.copy(live);
  staging.hold_updates();
  for (const DcpTensorItem& item : live.tensors) item.tensor.add_(1);
  staging.wait();
  ASSERT_EQ(staged.tensors.size(), live.tensors.size());
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(staged.tensors[i].name, live.tensors[i].name);
    EXPECT_EQ(staged.tensors[i].tensor.scalar_type(), before[i].scalar_type());
    EXPECT_TRUE(at::equal(staged.tensors[i].tensor, before[i])) << live.tensors[i].name;
  }
  ASSERT_EQ(staged.objects.size(), 1);
  EXPECT_EQ(staged.objects[0].name, "train_state.step");
}

TEST(Staging, CopiesAnewEachTimeAlsoWhenSizesHaveChanged) {
  StateDict live;
  live.tensors = {item("x", test::random_tensor({4, 4}))};
  Staging staging(at::kCPU, live);
  staging.copy(live);
  live.tensors = {item("x", test::random_tensor({3, 2})), item("y", test::random_tensor({8}))};
  const StateDict staged = staging.copy(live);
  staging.wait();
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(staged.tensors[i].tensor, live.tensors[i].tensor)) << i;
}

}  // namespace
}  // namespace titanium::checkpoint
