// A module owns parameters, buffers and modules. Its constructor gives each its full name, so that the tree needs no
// naming machinery; it registers them, so that everything outside (optimizer, checkpoint, parallelism) sees flat lists.
#pragma once

#include <optional>
#include <vector>

#include "titanium/nn/buffer.h"
#include "titanium/tensor/parameter.h"

namespace titanium::nn {

// A tensor that a checkpoint of the module holds, on all ranks together.
struct StoredTensor {
  std::string fqn;
  Shape global_shape;
};

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // All parameters below, each once, in registration order; all buffers likewise.
  std::vector<Parameter*> parameters() const { return parameters_; }
  std::vector<Buffer*> buffers() const { return buffers_; }
  std::vector<Buffer*> persistent_buffers() const;
  // The parameters, then the persistent buffers.
  std::vector<StoredTensor> stored_tensors() const;

  // Allocates every parameter, uninitialised, and every buffer, filled with zeros. Buffers lie beside the parameters
  // unless another device is given for them.
  void materialize(Dtype dtype, Device device, bool pinned = false, std::optional<Device> buffers = std::nullopt);

 protected:
  void add(Parameter& parameter) { parameters_.push_back(&parameter); }
  void add(Buffer& buffer) { buffers_.push_back(&buffer); }
  void add(const Module& child);

 private:
  std::vector<Parameter*> parameters_;  // own ones and those of the children
  std::vector<Buffer*> buffers_;
};

}  // namespace titanium::nn
