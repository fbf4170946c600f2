// Where named numbers and pictures of a step go.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "titanium/observe/shown_image.h"

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
  // Pictures of one step, in the same order each time. A writer that has no place for them passes them over.
  virtual void write_images(int64_t /*step*/, std::span<const ShownImage> /*images*/) {}
};

}  // namespace titanium::observe
