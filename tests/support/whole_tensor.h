// All of a tensor of a checkpoint.
#pragma once

#include <ATen/ops/empty.h>

#include "titanium/base/error.h"
#include "titanium/checkpoint/dcp/reader.h"

namespace titanium::test {

// On the CPU. Throws Error as DcpReader::read does, and allocates nothing that the files do not hold, because a damaged
// index may announce a tensor of any size.
inline Tensor whole_tensor(const checkpoint::DcpReader& reader, const std::string& name) {
  const checkpoint::DcpTensor& saved = reader.tensor(name);
  const int64_t needed = volume(saved.shape) * static_cast<int64_t>(c10::elementSize(saved.dtype));
  int64_t stored = 0;
  for (const auto& [index, location] : reader.metadata().locations) {
    if (index.name == name) stored += std::min(location.length, needed - stored);
  }
  TI_CHECK(stored == needed, "{} has only {} of {} bytes in the files", name, stored, needed);
  const Tensor whole = at::empty(saved.shape, at::TensorOptions(saved.dtype));
  reader.read_box(name, saved.shape, whole_box(saved.shape), whole);
  return whole;
}

}  // namespace titanium::test
