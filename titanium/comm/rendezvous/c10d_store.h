// Only for the few files that include c10d's headers, which are slow to compile.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace titanium::comm {

struct C10dStore {
  c10::intrusive_ptr<c10d::Store> store;
};

}  // namespace titanium::comm
