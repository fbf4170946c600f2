#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/copy_tensors.h"

namespace titanium::kernels {
namespace {

using test::element_type;
using test::wide;

class KernelCopyTensors : public test::KernelTest {
 protected:
  // Rows of a wider buffer each.
  struct Pair {
    Tensor source, target;
  };
  Pair pair(int64_t rows, int64_t columns, int64_t gap, Dtype from, Dtype to, int64_t shift) const {
    return {random({rows, columns + gap}, from, shift).narrow(1, 0, columns),
            random({rows, columns + 2 * gap}, to, shift).narrow(1, gap, columns)};
  }
  std::vector<Pair> pairs() const {
    std::vector<Pair> all;
    for (const Dtype from : {at::kFloat, at::kBFloat16}) {
      for (const Dtype to : {at::kFloat, at::kBFloat16}) {
        all.push_back(pair(1, 1, 0, from, to, 0));
        all.push_back(pair(0, 5, 0, from, to, 0));
        all.push_back(pair(1, 2000003, 0, from, to, 0));
        all.push_back(pair(1, 30000, 0, from, to, 1));
        all.push_back(pair(300, 1024, 8, from, to, 0));
        all.push_back(pair(300, 1024, 3, from, to, 0));
        all.push_back(pair(77, 13, 5, from, to, 2));
        all.push_back(pair(1000, 24, 16, from, to, 0));
        all.push_back(pair(3, 16384, 0, from, to, 0));
      }
    }
    return all;
  }
  static std::vector<CopyTensor> entries(const std::vector<Pair>& pairs) {
    std::vector<CopyTensor> entries;
    for (const Pair& p : pairs)
      entries.push_back({p.source.data_ptr(), p.target.data_ptr(), p.source.size(0), p.source.size(1),
                         p.source.stride(0), p.target.stride(0), element_type(p.source), element_type(p.target), 0});
    return entries;
  }
  void copy(const std::vector<Pair>& pairs, bool accumulate) const {
    const auto list = upload(entries(pairs));
    launch(copy_tensors, CopyTensorsArgs{list.entries, list.count, list.chunks, accumulate});
    synchronize_gpu();
  }
};

TEST_F(KernelCopyTensors, CastsAsLibtorchDoes) {
  const std::vector<Pair> all = pairs();
  copy(all, false);
  for (const Pair& p : all) EXPECT_TRUE(at::equal(p.target, p.source.to(p.target.scalar_type()))) << p.source.sizes();
}

TEST_F(KernelCopyTensors, AccumulatesInFloat) {
  const std::vector<Pair> all = pairs();
  std::vector<Tensor> expected;
  for (const Pair& p : all)
    expected.push_back((p.target.to(at::kFloat) + p.source.to(at::kFloat)).to(p.target.scalar_type()));
  copy(all, true);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(at::equal(all[i].target, expected[i])) << expected[i].sizes();
}

TEST_F(KernelCopyTensors, ListsInHostMemoryOfAnyLengthDoTheSame) {
  std::vector<Pair> all = pairs(), more = pairs();
  all.insert(all.end(), more.begin(), more.end());
  ASSERT_GT(static_cast<int64_t>(all.size()), kCopiesPerLaunch);
  const auto copy_list = [&](bool accumulate) {
    launch(
        [&](const std::vector<CopyTensor>& list, GpuStream stream) {
          copy_tensors_of_host_list(list.data(), static_cast<int64_t>(list.size()), accumulate, stream);
        },
        entries(all));
  };
  copy_list(false);
  for (const Pair& p : all) EXPECT_TRUE(at::equal(p.target, p.source.to(p.target.scalar_type()))) << p.source.sizes();
  copy_list(true);
  for (const Pair& p : all) {
    const Tensor once = p.source.to(p.target.scalar_type()).to(at::kFloat);
    EXPECT_TRUE(at::equal(p.target, (once + p.source.to(at::kFloat)).to(p.target.scalar_type()))) << p.source.sizes();
  }
}

TEST_F(KernelCopyTensors, LeavesTheGapsBetweenRows) {
  const Tensor target = empty({10, 40}, at::kBFloat16), source = random({10, 24}, at::kFloat);
  copy({{source, target.narrow(1, 8, 24)}}, false);
  EXPECT_EQ(target.isnan().sum().item<int64_t>(), 160);
}

}  // namespace
}  // namespace titanium::kernels
