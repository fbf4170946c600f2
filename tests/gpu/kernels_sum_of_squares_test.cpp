#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/sum_of_squares.h"

namespace titanium::kernels {
namespace {

using test::element_type;
using test::wide;

class KernelSumOfSquares : public test::KernelTest {
 protected:
  Tensor sum(const std::vector<Tensor>& tensors) const {
    std::vector<SumOfSquaresTensor> entries;
    for (const Tensor& tensor : tensors)
      entries.push_back({tensor.data_ptr(), tensor.numel(), element_type(tensor), 0});
    const auto list = upload(entries);
    const Tensor partials = scratch(sum_of_squares_scratch_bytes()), result = empty({}, at::kDouble);
    launch(sum_of_squares, SumOfSquaresArgs{list.entries, list.count, list.chunks,
                                            static_cast<double*>(partials.data_ptr()), result.data_ptr<double>()});
    return result;
  }
};

TEST_F(KernelSumOfSquares, AgreesWithDoubleArithmeticOverManyTensors) {
  std::vector<Tensor> tensors;
  double expected = 0;
  const auto add = [&](const Tensor& tensor) {
    tensors.push_back(tensor);
    expected += wide(tensor).square().sum().item<double>();
  };
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const int64_t size : {1, 0, 7, 64, 65536, 65537, 1000003, 0, 131072}) {
      add(random({size}, dtype));
      add(random({size}, dtype, 1));
    }
    add(random({3, 4096}, dtype).mul_(1e15));
    add(random({50}, dtype).mul_(1e-30));
  }
  add(random({0}, at::kFloat));
  EXPECT_NEAR(sum(tensors).item<double>(), expected, 1e-12 * expected);
}

TEST_F(KernelSumOfSquares, RepeatsItsBits) {
  const Tensor big = random({20000001}, at::kBFloat16);
  const double first = sum({big}).item<double>();
  EXPECT_NEAR(first, wide(big).square().sum().item<double>(), 1e-12 * first);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(sum({big}).item<double>(), first);
}

TEST_F(KernelSumOfSquares, AnEmptyListIsZero) { EXPECT_EQ(sum({random({0}, at::kFloat)}).item<double>(), 0); }

TEST_F(KernelSumOfSquares, ANumberThatIsNotFiniteComesThrough) {
  const Tensor bad = random({1000}, at::kBFloat16);
  bad.narrow(0, 500, 1).fill_(NAN);
  EXPECT_TRUE(std::isnan(sum({bad}).item<double>()));
}

}  // namespace
}  // namespace titanium::kernels
