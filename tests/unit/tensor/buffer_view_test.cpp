#include "titanium/tensor/buffer_view.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

namespace titanium {
namespace {

TEST(BufferView, IsWhatNarrowAndViewGive) {
  const Tensor buffer = at::arange(24, at::kFloat);
  EXPECT_TRUE(at::equal(buffer_view(buffer, at::kFloat, 5, {2, 3}), buffer.narrow(0, 5, 6).view({2, 3})));
  EXPECT_TRUE(at::equal(buffer_view(buffer, at::kFloat, 1, {3, 2}, {8, 1}), buffer.view({3, 8}).narrow(1, 1, 2)));
  EXPECT_EQ(buffer_view(buffer, at::kFloat, 24, {0, 4}).numel(), 0);
}

TEST(BufferView, WritesToItsBuffer) {
  const Tensor buffer = at::zeros({6});
  buffer_view(buffer, at::kFloat, 2, {3}).fill_(1);
  EXPECT_EQ(buffer.sum().item<float>(), 3);
  EXPECT_EQ(buffer[1].item<float>(), 0);
  EXPECT_EQ(buffer[2].item<float>(), 1);
}

TEST(BufferView, CountsInElementsOfItsOwnDtypeAndFromTheBeginningOfABufferThatIsItselfAPart) {
  const Tensor buffer = at::arange(12, at::kFloat), half = buffer.narrow(0, 6, 6);
  EXPECT_TRUE(at::equal(buffer_view(half, at::kInt, 1, {4}), buffer.view(at::kInt).narrow(0, 7, 4)));
  EXPECT_TRUE(at::equal(buffer_view(half, at::kShort, 2, {4}), buffer.view(at::kShort).narrow(0, 14, 4)));
}

TEST(BufferView, KeepsTheMemoryOfItsBuffer) {
  Tensor buffer = at::arange(4, at::kFloat);
  const Tensor view = buffer_view(buffer, at::kFloat, 3, {1});
  buffer = Tensor();
  EXPECT_EQ(view.item<float>(), 3);
}

}  // namespace
}  // namespace titanium
