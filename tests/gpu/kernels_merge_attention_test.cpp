#include <ATen/ops/logaddexp.h>
#include <ATen/ops/sigmoid.h>

#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/merge_attention.h"

namespace titanium::kernels {
namespace {

using test::wide;
using KernelMergeAttention = test::KernelTest;

struct Case {
  int64_t batch, queries, heads, head_dim;
  int64_t shift = 0;
};
const std::vector<Case> kCases = {{1, 1, 1, 1},    {2, 33, 3, 64}, {1, 130, 8, 128},   {3, 5, 2, 7},
                                  {2, 64, 4, 256}, {1, 9, 5, 96},  {1, 40, 2, 128, 1}, {2, 3, 2, 300}};

AttentionResult describe(const Tensor& out, const Tensor& sums) {
  return {test::element_type(out), out.data_ptr(), static_cast<float*>(sums.data_ptr()),
          out.stride(0),           sums.stride(0), sums.stride(1)};
}

TEST_F(KernelMergeAttention, WeighsBothResultsByTheirSums) {
  for (const auto& [type, part_type] : {std::pair(at::kFloat, at::kBFloat16), std::pair(at::kBFloat16, at::kBFloat16),
                                        std::pair(at::kFloat, at::kFloat)}) {
    for (const Case& size : kCases) {
      SCOPED_TRACE(testing::Message() << type << ", " << size.queries << " x " << size.heads << " x " << size.head_dim);
      // The queries in the middle of longer sequences.
      const Tensor longer = random({size.batch, size.queries + 9, size.heads, size.head_dim}, type, size.shift);
      const Tensor longer_sums = random({size.batch, size.heads, size.queries + 9}, at::kFloat).mul_(20);
      const Tensor out = longer.narrow(1, 4, size.queries), sums = longer_sums.narrow(2, 4, size.queries);
      const Tensor part = random({size.batch, size.queries, size.heads, size.head_dim}, part_type);
      const Tensor part_sums = random({size.batch, size.heads, size.queries}, at::kFloat).mul_(20);
      const Tensor share = at::sigmoid(wide(part_sums) - wide(sums)).transpose(1, 2).unsqueeze(3);
      const Tensor expected = wide(out).lerp(wide(part), share);
      const Tensor expected_sums = at::logaddexp(wide(sums), wide(part_sums));
      const Tensor before = longer.clone();
      launch(merge_attention, MergeAttentionArgs{describe(out, sums), describe(part, part_sums), size.batch,
                                                 size.queries, size.heads, size.head_dim});
      EXPECT_ROUNDED(out, expected, 4 * test::tolerance(at::kFloat));
      EXPECT_CLOSE(sums, expected_sums, 4 * test::tolerance(at::kFloat));
      EXPECT_TRUE(at::equal(longer.narrow(1, 0, 4), before.narrow(1, 0, 4)));
      EXPECT_TRUE(at::equal(longer.narrow(1, size.queries + 4, 5), before.narrow(1, size.queries + 4, 5)));
    }
  }
}

}  // namespace
}  // namespace titanium::kernels
