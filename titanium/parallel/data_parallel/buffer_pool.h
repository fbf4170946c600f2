// Buffers that streams hand to each other.
#pragma once

#include <list>
#include <vector>

#include "titanium/tensor/streams.h"

namespace titanium::parallel {

// Note [Stream-safe reuse]
// A buffer that goes back to the pool may still be in use by queued work. The pool remembers that point of the giving
// stream, and the stream that takes the buffer next waits for it there. So memory is reused without the host ever
// waiting, and the pool grows to exactly the number of buffers that are in flight at a time.
class BufferPool {
 public:
  explicit BufferPool(Device device) : device_(device) {}

  // `elements` of `dtype`, uninitialised; the beginning of a buffer that may be somewhat larger.
  Tensor take(int64_t elements, Dtype dtype);
  // `buffer` came from `take`; the caller does not use it any more.
  void give_back(const Tensor& buffer);

  int64_t bytes() const { return bytes_; }  // that the pool has allocated

 private:
  struct Free {
    Tensor buffer;
    Fence last_use;
  };
  Device device_;
  std::list<Free> free_;
  std::vector<Tensor> taken_;  // whole
  int64_t bytes_ = 0;
};

}  // namespace titanium::parallel
