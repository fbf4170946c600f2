// Skips a test where there is no GPU.
#pragma once

#include <ATen/Context.h>

#include "tests/support/tensors.h"
#include "titanium/tensor/gpu_backend.h"

namespace titanium::test {

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (gpu_device_count() == 0) GTEST_SKIP() << "no GPU (" << gpu_versions() << ")";
    at::manual_seed(0);  // the same random numbers whichever tests run before
  }
  const Device gpu_ = Device(at::kCUDA, 0);
};

}  // namespace titanium::test
