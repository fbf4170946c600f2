// Copies beside the computation: they wait for what was computed before, and updates wait for them.
#include "titanium/checkpoint/staging.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include "tests/gpu/gpu_test.h"

namespace titanium::checkpoint {
namespace {

class GpuStaging : public test::GpuTest {
 protected:
  // Large enough that a copy to the host takes tens of milliseconds, in which a kernel can overwrite all of it.
  static constexpr int64_t kCount = int64_t{1} << 28;

  StateDict state(double value) const {
    StateDict live;
    live.tensors = {{.name = "x",
                     .global_shape = {kCount},
                     .box = {.offset = {0}, .shape = {kCount}},
                     .tensor = at::full({kCount}, value, at::TensorOptions(at::kFloat).device(gpu_))}};
    return live;
  }
  // Queues work that takes the GPU a while.
  void keep_busy(const Tensor& tensor) const {
    for (int i = 0; i < 100; ++i) tensor.add_(1).sub_(1);
  }
};

TEST_F(GpuStaging, KeepsTheValuesOfItsMomentWhileTheRunGoesOn) {
  const StateDict live = state(3);
  const Tensor& x = live.tensors[0].tensor;
  Staging staging(gpu_, live);
  for (const double value : {3.0, 7.0}) {  // the second time in the same host memory
    x.fill_(-1);
    keep_busy(x);
    x.fill_(value);  // queued: the copy has to wait for it
    const StateDict staged = staging.copy(live);
    staging.hold_updates();
    x.fill_(-2);  // queued: it has to wait for the copy
    staging.wait();
    EXPECT_TRUE(at::equal(staged.tensors[0].tensor, at::full({kCount}, value, at::kFloat)));
    EXPECT_TRUE(staged.tensors[0].tensor.is_pinned());
  }
}

}  // namespace
}  // namespace titanium::checkpoint
