// Plans of runs that share each sequence, for ranks that need not exist.
#include <gtest/gtest.h>

#include "titanium/train/train_state.h"

namespace titanium::train {
namespace {

constexpr int64_t kRanks = 512;

JobConfig large_config(int64_t seq_len, int64_t context) {
  JobConfig config;
  config.model.flavor = "405B";
  config.training.seq_len = seq_len;
  config.training.local_batch_size = 1;
  config.training.mixed_precision_param = "bfloat16";
  config.parallelism.tensor_parallel_degree = 8;
  config.parallelism.context_parallel_degree = context;
  config.activation_checkpoint.mode = "full";
  return config;
}

TEST(ContextPlan, ActivationsFallWithTheNumberOfRanksUpToAMillionTokens) {
  for (const int64_t seq_len : {32768, 65536, 131072, 262144, 1048576}) {
    const ModelPlan whole = plan_model(large_config(seq_len, 1), kRanks);
    for (const int64_t context : {2, 4, 8}) {
      const ModelPlan shared = plan_model(large_config(seq_len, context), kRanks);
      EXPECT_EQ(shared.dims.dp_shard, kRanks / 8 / context);
      EXPECT_EQ(shared.memory.activations, whole.memory.activations / context);
      EXPECT_EQ(shared.memory.working, whole.memory.working / context);
      // Shards are over dp_shard x cp.
      EXPECT_EQ(shared.memory.parameters, whole.memory.parameters);
    }
    // 126 inputs of 16384 columns in bfloat16, cut by 8 ranks.
    EXPECT_EQ(whole.memory.activations, 126 * seq_len * 16384 * 2 / 8);
  }
}

TEST(ContextPlan, TheRingHoldsFewerKeysThanTheGather) {
  JobConfig config = large_config(1048576, 8);
  const int64_t without = plan_model(large_config(1048576, 1), kRanks).memory.communication;
  const int64_t gathered = plan_model(config, kRanks).memory.communication - without;
  config.parallelism.context_parallel_rotate_method = "alltoall";
  const int64_t ring = plan_model(config, kRanks).memory.communication - without;
  // One key/value head of 128 on each tensor-parallel rank: 256 elements per token, 2 bytes and 4 for the gradient.
  EXPECT_EQ(gathered, 1048576 * 256 * (2 + 4));
  EXPECT_EQ(ring, 1048576 / 8 * 256 * (2 * 2 + 3 * 4));
}

}  // namespace
}  // namespace titanium::train
