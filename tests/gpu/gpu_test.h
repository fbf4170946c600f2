// Skips a test where there is no GPU.
#pragma once

#include "tests/support/tensors.h"
#include "titanium/tensor/cuda_backend.h"

namespace titanium::test {

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU (" << cuda_versions() << ")";
  }
  const Device gpu_ = Device(at::kCUDA, 0);
};

}  // namespace titanium::test
