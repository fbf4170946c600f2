// Errors. A message is one sentence for the user: the value, what was expected, and the remedy.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace titanium {

// Something failed while running. The program ends with exit code 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The command line, the configuration or another input is wrong. The program ends with exit code 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

[[noreturn]] void throw_assertion(const char* file, int line, const char* condition, const std::string& message);

}  // namespace titanium

// A condition that the user's input or the outside world can break: throws Error with the formatted sentence.
#define TI_CHECK(condition, ...)                                         \
  do {                                                                   \
    if (!(condition)) throw ::titanium::Error(fmt::format(__VA_ARGS__)); \
  } while (false)

// A condition that only a bug in Titanium can break: throws std::logic_error with file and line.
#define TI_ASSERT(condition, ...)                                                                               \
  do {                                                                                                          \
    if (!(condition)) ::titanium::throw_assertion(__FILE__, __LINE__, #condition, fmt::format("" __VA_ARGS__)); \
  } while (false)
