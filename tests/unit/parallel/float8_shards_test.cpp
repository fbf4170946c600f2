#include "titanium/parallel/data_parallel/float8_shards.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/sin.h>
#include <gtest/gtest.h>

#include "tests/support/threaded_ranks.h"
#include "titanium/ops/linear/float8.h"
#include "titanium/parallel/data_parallel/sharded_unit.h"
#include "titanium/parallel/placement.h"

namespace titanium::parallel {
namespace {

Tensor whole_of(const Parameter& parameter) {
  return at::arange(volume(parameter.global_shape), at::kFloat).sin().view(parameter.global_shape);
}

Float8Tensor quantized(const Tensor& whole) {
  return ops::to_float8(whole, ops::find_scale(ops::find_amax(whole), ops::kE4m3), ops::kE4m3);
}

void expect_whole_float8(const Parameter& parameter, const Tensor& whole) {
  const Float8Tensor expected = quantized(whole);
  const Float8Tensor& found = parameter.float8->for_output;
  ASSERT_EQ(found.data.sizes(), expected.data.sizes());
  EXPECT_TRUE(at::equal(found.data.view(at::kByte), expected.data.view(at::kByte))) << parameter.fqn;
  EXPECT_TRUE(at::equal(found.scale, expected.scale)) << parameter.fqn;
  EXPECT_EQ(found.data.data_ptr(), parameter.float8->for_input_grad.data.data_ptr());
  EXPECT_EQ(found.data.sizes(), parameter.float8->for_input_grad.data.t().sizes());
}

// Two float8 weights, one of them with fewer rows than ranks, beside parameters that travel as they are.
void gather_float8(comm::World& world, Dtype compute) {
  const int rank = world.rank(), ranks = world.size();
  const Mesh mesh(world, {.dp_shard = ranks});
  Parameter a("a", {48, 16}), b("b", {3, 32}), norm("norm", {5}), plain("plain", {7, 4});
  for (Parameter* weight : {&a, &b}) {
    weight->float8 = std::make_unique<Float8Weight>();
    weight->float8->is_gathered = true;
  }
  const std::vector<Parameter*> parameters = {&a, &norm, &b, &plain};
  for (Parameter* parameter : parameters) {
    shard(*parameter, {.dp_shard = ranks}, rank);
    parameter->materialize(at::kFloat, at::kCPU);
    parameter->gather_around_use(at::kFloat);
    parameter->value.detach().copy_(box_of(whole_of(*parameter), parameter->shard));
  }
  ShardContext context(at::kCPU, compute);
  const nn::Unit described("unit", nn::UnitRole::kBlock, parameters);
  ShardedUnit unit(described, data_parallel_groups(described, mesh), context);
  for (const double factor : {1.0, 3.0}) {
    for (Parameter* parameter : parameters) {
      parameter->value.detach().copy_(box_of(whole_of(*parameter), parameter->shard) * factor);
      parameter->value_changed();
    }
    if (factor == 3.0) find_weight_amax(parameters, *unit.groups().shard, at::kCPU);  // all scales at once
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      const Tensor travelled = a.float8->shard.data;
      unit.finish_gather();
      expect_whole_float8(a, whole_of(a) * factor);
      expect_whole_float8(b, whole_of(b) * factor);
      EXPECT_TRUE(at::equal(norm.in(at::kFloat), whole_of(norm) * factor));
      EXPECT_TRUE(at::equal(plain.in(compute), (whole_of(plain) * factor).to(compute)));
      EXPECT_TRUE(micro_batch == 0 || a.float8->shard.data.is_same(travelled));  // quantised once
      unit.release();
      EXPECT_FALSE(a.float8->for_output.data.defined());
    }
  }
  unit.groups().shard->barrier();
}

TEST(Float8Shards, GatheredWeightsAreTheWholeWeightQuantised) {
  for (const Dtype compute : {at::kFloat, at::kBFloat16}) {
    for (const int ranks : {1, 2, 3, 4}) {
      test::run_ranks(ranks, [&](comm::World& world) { gather_float8(world, compute); });
    }
  }
}

TEST(Float8Shards, AWeightTravelsInOneBytePerElement) {
  Parameter weight("w", {64, 32});
  const auto bytes = [&](Dtype compute) {
    return gather_layout({&weight}, 2, at::kFloat, compute).elements * static_cast<int64_t>(c10::elementSize(compute));
  };
  EXPECT_EQ(bytes(at::kBFloat16), 2 * 32 * 32);
  weight.float8 = std::make_unique<Float8Weight>();
  EXPECT_EQ(bytes(at::kBFloat16), 2 * 32 * 32);
  weight.float8->is_gathered = true;
  EXPECT_EQ(bytes(at::kBFloat16), 32 * 32);
  EXPECT_EQ(bytes(at::kFloat), 32 * 32);
  EXPECT_EQ(part_dtype(weight, at::kFloat, at::kBFloat16), at::kBFloat16);  // its gradient
}

TEST(Float8Shards, APartWithRowsOfLessThanAnElementTravelsInTheComputeDtype) {
  Parameter weight("w", {16, 16});
  weight.float8 = std::make_unique<Float8Weight>();
  weight.float8->is_gathered = true;
  weight.part = weight.shard = {{0, 0}, {16, 1}};
  EXPECT_FALSE(travels_as_float8(weight, at::kBFloat16));
}

}  // namespace
}  // namespace titanium::parallel
