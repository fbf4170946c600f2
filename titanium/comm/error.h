// What is thrown when ranks cannot exchange.
#pragma once

#include "titanium/base/error.h"

namespace titanium::comm {

// The message names this rank, the collective, the axis, the step, and the cause as far as it is known.
class CommError : public Error {
 public:
  using Error::Error;
};

}  // namespace titanium::comm
