// Distributed checkpoints of tensors on a GPU: written through pinned memory, read without waiting for each block.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include "tests/gpu/gpu_test.h"
#include "tests/support/test_folder.h"
#include "titanium/checkpoint/dcp/reader.h"
#include "titanium/checkpoint/dcp/writer.h"

namespace titanium::checkpoint {
namespace {

using GpuDcp = test::GpuTest;

TEST_F(GpuDcp, TensorsOnAGpuAreWrittenAndReadInAnyStridesAndDtype) {
  const auto folder = test::test_folder();
  const Shape shape = {3000, 10'000};  // 120 MB: more than the staging buffer
  const Tensor tensor = at::arange(volume(shape), at::TensorOptions(at::kFloat).device(gpu_)).reshape(shape);
  const std::vector<DcpTensorItem> items = {{"w", shape, {{0, 0}, shape}, tensor, false, {}},
                                            {"t", {10'000, 3000}, {{0, 0}, {10'000, 3000}}, tensor.t(), false, {}}};
  const DcpPart part = write_dcp_files(folder, 0, items, {});
  publish_dcp(folder, std::span(&part, 1), {});

  const auto empty = [&](const Shape& sizes, Dtype dtype) {
    return at::empty(sizes, at::TensorOptions(dtype).device(gpu_));
  };
  const Box middle{{700, 30}, {2000, 9000}};
  const std::vector<DcpRequest> requests = {
      {"w", shape, {{0, 0}, shape}, empty(shape, at::kFloat)},
      {"w", shape, middle, empty(middle.shape, at::kBFloat16)},
      {"t", {10'000, 3000}, {{0, 0}, {10'000, 3000}}, empty(shape, at::kFloat).t()}};
  DcpReader(folder).read(requests);
  EXPECT_TRUE(requests[0].destination.equal(tensor));
  EXPECT_TRUE(requests[1].destination.equal(box_of(tensor, middle).to(at::kBFloat16)));
  EXPECT_TRUE(requests[2].destination.equal(tensor.t()));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace titanium::checkpoint
