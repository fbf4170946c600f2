// Where named numbers of a step go.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace titanium::observe {

struct Scalar {
  std::string tag;
  double value = 0;
};

class ScalarWriter {
 public:
  virtual ~ScalarWriter() = default;

  // The scalars of one step. Steps do not decrease.
  virtual void write(int64_t step, std::span<const Scalar> scalars) = 0;
};

}  // namespace titanium::observe
