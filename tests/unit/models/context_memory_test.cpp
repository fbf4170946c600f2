// What a rank keeps of a shared sequence, counted at the allocator.
#include <ATen/ops/randint.h>
#include <c10/core/Allocator.h>

#include "tests/support/tiny_llama.h"
#include "titanium/comm/world.h"
#include "titanium/models/llama3/model.h"
#include "titanium/parallel/context_parallel.h"

namespace titanium::models {
namespace {

// Bytes that this thread has allocated on the CPU and not freed.
class LiveBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override { count += bytes; }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t count = 0;
};

struct Counted {
  int64_t kept = 0;     // from forward to backward
  int64_t planned = 0;  // by the level of the blocks
};

Counted count_kept(size_t level, int64_t ranks, parallel::RotateMethod method) {
  constexpr int64_t kBatch = 2, kTokens = 512;
  llama3::Llama3 model(test::tiny_llama(kTokens, /*kv_heads=*/2));
  model.materialize(at::kFloat, at::kCPU);
  model.build_buffers(at::kCPU);
  model.init_weights(1);
  for (int64_t block = 0; block < model.block_count(); ++block) model.block(block)->level = level;
  const auto world = comm::make_fake_world(/*rank=*/0, static_cast<int>(ranks));
  std::vector<int> members(ranks);
  std::iota(members.begin(), members.end(), 0);
  const auto exchange =
      parallel::make_context_exchange(world->group("cp", members), {0, ranks, /*head_and_tail=*/true}, method);
  if (ranks > 1) model.set_context_exchange(*exchange);
  const Tensor tokens = at::randint(model.vocabulary(), {kBatch, kTokens / ranks}, at::kLong);
  model.loss({tokens, nullptr}, tokens, 1.0).backward();  // builds what stays
  const auto live = std::make_shared<LiveBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
  const Tensor loss = model.loss({tokens, nullptr}, tokens, 1.0);
  return {live->count, model.block_count() * tokens.numel() * model.levels_of(0)[level].kept_bytes};
}

TEST(ContextMemory, OfActivationsFallsWithTheNumberOfRanks) {
  for (const size_t level : {0, 2, 3}) {  // everything, the attention half, the input
    const Counted whole = count_kept(level, 1, parallel::RotateMethod::kAllGather);
    EXPECT_GE(whole.kept, whole.planned);
    for (const auto method : {parallel::RotateMethod::kAllGather, parallel::RotateMethod::kAllToAll}) {
      for (const int64_t ranks : {2, 4, 8}) {
        const Counted share = count_kept(level, ranks, method);
        EXPECT_EQ(share.planned, whole.planned / ranks);
        EXPECT_GE(share.kept, share.planned);
        EXPECT_NEAR(static_cast<double>(share.kept * ranks), static_cast<double>(whole.kept), 0.01 * whole.kept)
            << ranks << " ranks";
      }
    }
  }
}

}  // namespace
}  // namespace titanium::models
