#include "titanium/parallel/data_parallel/replicate.h"

#include <ATen/ops/full_like.h>
#include <gtest/gtest.h>

#include "tests/support/threaded_ranks.h"
#include "titanium/parallel/mesh.h"

namespace titanium::parallel {
namespace {

// Tensor cores' copies want gradients of matrices to begin at a multiple of 16 bytes, whatever lies before them.
TEST(Replicate, GradientsInABucketAreAligned) {
  test::run_ranks(2, [](comm::World& world) {
    const Mesh mesh(world, {.dp_replicate = 2});
    Parameter bias("bias", {3}), matrix("matrix", {2, 5}), other("other", {4, 4});
    for (Parameter* parameter : {&bias, &matrix, &other}) parameter->materialize(at::kBFloat16, at::kCPU);
    nn::Unit unit("unit", nn::UnitRole::kBlock, {&bias, &matrix, &other});
    Replicate replicate({&unit}, mesh, at::kCPU, {});
    replicate.begin_micro_batch(/*last=*/true);
    for (Parameter* parameter : {&bias, &matrix, &other}) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(parameter->grad_place.const_data_ptr()) % 16, 0U) << parameter->fqn;
      parameter->accumulate(at::full_like(parameter->value.detach(), world.rank() + 1));
    }
    replicate.end_micro_batch();
    for (const Parameter* parameter : {&bias, &matrix, &other}) {
      EXPECT_TRUE(parameter->grad.eq(3).all().item<bool>()) << parameter->fqn;
    }
  });
}

}  // namespace
}  // namespace titanium::parallel
