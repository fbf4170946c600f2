#include "titanium/parallel/data_parallel/replicate.h"

#include <ATen/ops/full_like.h>
#include <gtest/gtest.h>

#include "tests/support/recording_world.h"
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

TEST(Replicate, GradientsOfAllMicroBatchesAreSummedOnceAfterTheLast) {
  test::run_ranks(2, [](comm::World& world) {
    test::CollectiveCounts counts;
    test::RecordingWorld recording(world, counts);
    const Mesh mesh(recording, {.dp_replicate = 2});
    Parameter first("first", {4}), second("second", {4});
    for (Parameter* parameter : {&first, &second}) parameter->materialize(at::kFloat, at::kCPU);
    nn::Unit embedding("embedding", nn::UnitRole::kEmbedding, {&first}), head("head", nn::UnitRole::kHead, {&second});
    Replicate replicate({&embedding, &head}, mesh, at::kCPU, {.bucket_bytes = 1});  // a bucket for each unit
    for (const bool last : {false, false, true}) {
      replicate.begin_micro_batch(last);
      for (Parameter* parameter : {&second, &first}) {
        parameter->accumulate(at::full_like(parameter->value.detach(), world.rank() + 1));
        if (parameter == &second) head.hooks.front()->after_backward();  // the first unit of a model has none
      }
      EXPECT_EQ(counts.started, last ? 1 : 0);
      replicate.end_micro_batch();
      EXPECT_EQ(counts.started, last ? 2 : 0);
    }
    for (const Parameter* parameter : {&first, &second}) {
      EXPECT_TRUE(parameter->grad.eq(3 * (1 + 2)).all().item<bool>()) << parameter->fqn;
    }
  });
}

}  // namespace
}  // namespace titanium::parallel
