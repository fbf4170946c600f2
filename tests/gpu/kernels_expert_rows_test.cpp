#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>

#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/expert_rows.h"
#include "titanium/ops/experts/dispatch.h"

namespace titanium::kernels {
namespace {

using test::element_type;
using test::wide;

const double kLimit = 2 * test::tolerance(at::kFloat);

struct Case {
  int64_t tokens, top_k, dim;
  int64_t shift = 0;
};
// All sizes of batches; dims that are a multiple of nothing; arrays that are not aligned.
const std::vector<Case> kCases = {{1, 1, 1},      {3, 2, 7},    {129, 6, 2048}, {100, 8, 768},  {65, 4, 2880},
                                  {33, 1, 5120},  {17, 16, 24}, {50, 3, 130},   {20, 5, 96, 1}, {7, 9, 8},
                                  {1000, 6, 264}, {40, 1, 33},  {9, 12, 40, 3}};

class KernelExpertRows : public test::KernelTest {
 protected:
  // A row for each choice, in any order.
  Tensor random_rows(const Case& size) const { return at::randperm(size.tokens * size.top_k, at::kInt).to(gpu_); }
  static const float* floats(const Tensor& tensor) { return tensor.defined() ? tensor.data_ptr<float>() : nullptr; }
  static void* data(const Tensor& tensor) { return tensor.defined() ? tensor.data_ptr() : nullptr; }
};

std::string text(const Case& size, Dtype dtype) {
  return (testing::Message() << dtype << ", " << size.tokens << " tokens x " << size.top_k << ", dim " << size.dim)
      .GetString();
}

TEST_F(KernelExpertRows, GatherWritesEveryRowFromItsToken) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const bool weighted : {false, true}) {
      for (const Case& size : kCases) {
        SCOPED_TRACE(testing::Message() << text(size, dtype) << ", weighted " << weighted);
        const Tensor x = random({size.tokens, size.dim}, dtype, size.shift), places = random_rows(size);
        const Tensor weights = weighted ? random({size.tokens, size.top_k}, at::kFloat) : Tensor();
        const int64_t choices = size.tokens * size.top_k;
        const Tensor rows = empty({choices + 2, size.dim}, dtype);
        launch(gather_rows, GatherRowsArgs{element_type(x), x.data_ptr(), places.data_ptr<int32_t>(), floats(weights),
                                           rows.data_ptr(), size.tokens, size.top_k, size.dim});
        Tensor repeated = wide(x).repeat_interleave(size.top_k, 0);
        if (weighted) repeated = repeated * wide(weights).view({-1, 1});
        Tensor expected = at::zeros({choices, size.dim}, at::kDouble);
        expected.index_copy_(0, places.cpu().to(at::kLong), repeated);
        EXPECT_ROUNDED(rows.narrow(0, 0, choices), expected, kLimit);
        EXPECT_TRUE(weighted || at::equal(wide(rows.narrow(0, 0, choices)), expected));
        EXPECT_TRUE(rows.narrow(0, choices, 2).isnan().all().item<bool>());
      }
    }
  }
}

TEST_F(KernelExpertRows, CombineSumsTheRowsOfAToken) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const bool weighted : {false, true}) {
      for (const bool with_addend : {false, true}) {
        for (const int second : {0, 1, 2}) {  // nothing, a bias, more rows
          for (const Case& size : kCases) {
            SCOPED_TRACE(testing::Message() << text(size, dtype) << ", weighted " << weighted << ", addend "
                                            << with_addend << ", second " << second);
            const int64_t choices = size.tokens * size.top_k;
            const Tensor rows = random({choices, size.dim}, dtype, size.shift), places = random_rows(size);
            const Tensor weights = weighted ? random({size.tokens, size.top_k}, at::kFloat) : Tensor();
            const Tensor bias = second == 1 ? random({5, size.dim}, dtype) : Tensor();
            const Tensor more = second == 2 ? random({choices, size.dim}, dtype, size.shift) : Tensor();
            const Tensor experts = at::randint(5, {choices}, at::kInt).to(gpu_);
            // The addend is the output itself.
            const Tensor y =
                with_addend ? random({size.tokens, size.dim}, dtype) : empty({size.tokens, size.dim}, dtype);
            Tensor terms = wide(rows).index_select(0, places.cpu().to(at::kLong));
            if (second == 2) terms = terms + wide(more).index_select(0, places.cpu().to(at::kLong));
            if (second == 1) terms = terms + wide(bias).index_select(0, experts.cpu().to(at::kLong));
            if (weighted) terms = terms * wide(weights).view({-1, 1});
            Tensor expected = terms.view({size.tokens, size.top_k, size.dim}).sum(1);
            if (with_addend) expected = expected + wide(y);
            launch(combine_rows, CombineRowsArgs{element_type(y), rows.data_ptr(), places.data_ptr<int32_t>(),
                                                 floats(weights), with_addend ? y.data_ptr() : nullptr, y.data_ptr(),
                                                 size.tokens, size.top_k, size.dim, data(bias),
                                                 second == 1 ? experts.data_ptr<int32_t>() : nullptr, data(more)});
            EXPECT_ROUNDED(y, expected, kLimit);
          }
        }
      }
    }
  }
}

// Sums in the order of slots: 2^24 + 1 - 2^24 is 0 in fp32, 2^24 - 2^24 + 1 is 1.
TEST_F(KernelExpertRows, CombineAddsInTheOrderOfSlotsAndTheAddendLast) {
  const float big = 0x1p24F;
  const Tensor rows = at::empty({6, 4}, at::kFloat);
  const std::vector<float> of_row = {1, big, -big, big, -big, 1};
  for (int64_t row = 0; row < 6; ++row) rows[row].fill_(of_row[row]);
  const std::vector<int32_t> of_choice = {1, 0, 2, 3, 4, 5};
  const Tensor places = at::empty({6}, at::kInt);
  for (int64_t choice = 0; choice < 6; ++choice) places[choice] = of_choice[choice];
  const Tensor addend = at::full({2, 4}, 0.5, at::TensorOptions(at::kFloat).device(gpu_));
  const Tensor on_gpu = rows.to(gpu_), where = places.to(gpu_), y = empty({2, 4}, at::kFloat);
  launch(combine_rows, CombineRowsArgs{ElementType::kFloat32, on_gpu.data_ptr(), where.data_ptr<int32_t>(), nullptr,
                                       addend.data_ptr(), y.data_ptr(), 2, 3, 4});
  EXPECT_EQ(y[0][3].item<float>(), 0.5F);
  EXPECT_EQ(y[1][0].item<float>(), 1.5F);
}

TEST_F(KernelExpertRows, RowsThatAreTakenAreCopiesInTheOrderOfTheIndex) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const int64_t dim : {1, 13, 64, 2048}) {
      SCOPED_TRACE(testing::Message() << dtype << ", dim " << dim);
      const Tensor x = random({300, dim}, dtype);
      for (const int64_t count : {0, 1, 700}) {
        const Tensor index = at::randint(300, {count}, at::kInt).to(gpu_);
        EXPECT_TRUE(at::equal(ops::take_rows(x, index), x.index_select(0, index)));
      }
    }
  }
}

}  // namespace
}  // namespace titanium::kernels
