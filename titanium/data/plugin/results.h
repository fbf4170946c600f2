// What goes wrong in the plug-in libtitanium_arrow.so is an exception, whose message the program shows.
#pragma once

#include <arrow/result.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace titanium::data::plugin {

[[noreturn]] inline void fail(const std::string& message) { throw std::runtime_error(message); }

inline void check(const arrow::Status& status) {
  if (!status.ok()) fail(status.message() + ".");
}

template <typename T>
T value_of(arrow::Result<T> result) {
  check(result.status());
  return std::move(result).ValueUnsafe();
}

}  // namespace titanium::data::plugin
