#include <ATen/ops/randint.h>
#include <ATen/ops/sort.h>

#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/embedding_grad.h"

namespace titanium::kernels {
namespace {

using test::element_type;
using test::wide;

struct Case {
  int64_t tokens, dim, vocabulary;
  int64_t first_id = 0, table_rows = -1;  // of a shard
  int64_t shift = 0;
};
// Few distinct ids make runs that cross many windows; a vocabulary of 1 is one run.
const std::vector<Case> kCases = {
    {1, 1, 1},          {5, 3, 2},         {64, 8, 1},     {1000, 128, 1},      {4099, 1032, 7},         {3000, 96, 30},
    {16384, 256, 2000}, {2048, 4096, 500}, {777, 130, 40}, {320, 64, 20, 5, 7}, {333, 24, 50, 0, -1, 1}, {33, 2056, 3}};

class KernelEmbeddingGrad : public test::KernelTest {
 protected:
  void add(const Tensor& dy, const Tensor& ids, const Tensor& dtable, int64_t first_id) const {
    const auto [sorted, order] = at::sort(ids, /*stable=*/true, /*dim=*/0, /*descending=*/false);
    const Tensor room = scratch(embedding_grad_scratch_bytes(dy.size(0), dy.size(1)));
    launch(embedding_grad,
           EmbeddingGradArgs{element_type(dy), element_type(dtable), dy.data_ptr(), sorted.data_ptr<int64_t>(),
                             order.data_ptr<int64_t>(), dtable.data_ptr(), first_id, dtable.size(0), dy.size(0),
                             dy.size(1), static_cast<float*>(room.data_ptr())});
  }
};

TEST_F(KernelEmbeddingGrad, AddsTheRowsOfEqualIds) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Dtype table_dtype : {at::kFloat, at::kBFloat16}) {
      for (const Case& size : kCases) {
        SCOPED_TRACE(testing::Message() << dtype << " to " << table_dtype << ", " << size.tokens << " x " << size.dim
                                        << " of " << size.vocabulary);
        const int64_t rows = size.table_rows < 0 ? size.vocabulary : size.table_rows;
        const Tensor dy = random({size.tokens, size.dim}, dtype, size.shift);
        const Tensor ids = at::randint(size.vocabulary, {size.tokens}, at::kLong);
        const Tensor dtable = random({rows, size.dim}, table_dtype);
        Tensor expected = at::zeros({size.vocabulary, size.dim}, at::kDouble);
        expected.index_add_(0, ids, wide(dy));
        expected = expected.narrow(0, size.first_id, rows) + wide(dtable);
        const Tensor again = dtable.clone();
        add(dy, ids.to(gpu_), dtable, size.first_id);
        EXPECT_ROUNDED(dtable, expected, 2 * test::tolerance(at::kFloat));
        add(dy, ids.to(gpu_), again, size.first_id);
        EXPECT_TRUE(at::equal(again, dtable));
      }
    }
  }
}

TEST_F(KernelEmbeddingGrad, RowsThatNoTokenNamesAreNotTouched) {
  const Tensor dtable = empty({100, 64}, at::kBFloat16), dy = random({40, 64}, at::kBFloat16);
  dtable.narrow(0, 50, 2).zero_();
  add(dy, at::randint(50, 52, {40}, at::kLong).to(gpu_), dtable, 0);
  EXPECT_EQ(dtable.isnan().sum().item<int64_t>(), 98 * 64);
}

}  // namespace
}  // namespace titanium::kernels
