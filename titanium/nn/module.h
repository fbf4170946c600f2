// A module owns parameters and modules. Its constructor gives each parameter its full name, so that the tree needs no
// naming machinery; it registers them, so that everything outside (optimizer, checkpoint, parallelism) sees one flat
// list.
#pragma once

#include <vector>

#include "titanium/tensor/parameter.h"

namespace titanium::nn {

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // All parameters below, each once, in registration order.
  std::vector<Parameter*> parameters() const;

  // Allocates every parameter, uninitialised.
  void materialize(Dtype dtype, Device device, bool pinned = false);

 protected:
  void add(Parameter& parameter) { parameters_.push_back(&parameter); }
  void add(const Module& child);

 private:
  std::vector<Parameter*> parameters_;  // own ones and those of the children
};

}  // namespace titanium::nn
