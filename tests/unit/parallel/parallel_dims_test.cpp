#include "titanium/parallel/parallel_dims.h"

#include <gtest/gtest.h>

#include "titanium/base/error.h"

namespace titanium::parallel {
namespace {

TEST(ParallelDims, TheShardDegreeIsWhatIsLeft) {
  config::Parallelism degrees;
  degrees.data_parallel_replicate_degree = 2;
  degrees.tensor_parallel_degree = 8;
  const ParallelDims dims = parallel_dims(degrees, 64);
  EXPECT_EQ(dims.dp_shard, 4);
  EXPECT_EQ(dims.batch(), 8);
  EXPECT_EQ(dims.fsdp(), 4);
  EXPECT_EQ(dims.loss(), 8);
  EXPECT_EQ(dims.non_data_parallel_size(), 8);
  EXPECT_EQ(describe(dims), "pp=1, dp_replicate=2, dp_shard=4, cp=1, tp=8, ep=1, etp=1");
  EXPECT_EQ(describe_active_axes(dims), "batch 8, tp 8, loss 8, dp_replicate 2, fsdp 4");
}

TEST(ParallelDims, DegreesThatDoNotMakeUpTheWorldAreRefused) {
  config::Parallelism degrees;
  degrees.tensor_parallel_degree = 3;
  try {
    parallel_dims(degrees, 8);
    FAIL() << "8 ranks are not 2 x 3";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "pp=1, dp_replicate=1, dp_shard=2, cp=1, tp=3, ep=1, etp=1 make 6 ranks, but there are 8. Change the "
                 "number of ranks or the degrees under [parallelism].");
  }
}

TEST(ParallelDims, EveryRankIsInItsOwnGroupsAtItsPlace) {
  const ParallelDims dims = {.pp = 2, .dp_replicate = 2, .dp_shard = 2, .cp = 2, .tp = 4, .ep = 4, .etp = 1};
  for (const std::string& axis : axis_names()) {
    for (int rank = 0; rank < dims.world(); ++rank) {
      const std::vector<int> members = axis_members(dims, axis, rank);
      EXPECT_EQ(static_cast<int64_t>(members.size()), axis_size(dims, axis));
      EXPECT_EQ(members[axis_rank(dims, axis, rank)], rank) << axis;
      for (const int member : members) EXPECT_EQ(axis_members(dims, axis, member), members) << axis;
    }
  }
}

}  // namespace
}  // namespace titanium::parallel
