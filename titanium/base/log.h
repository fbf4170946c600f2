// Log lines in torchtitan's format: `[titan] 2026-01-31 12:00:00,123 - root - INFO - message`.
// Nothing is written until the program says where to: the library itself never touches stdout.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace titanium {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Sends all log lines of at least `level` to stdout. Colours are the caller's business: messages are written as they
// are.
void log_to_stdout(LogLevel level);

void log_message(LogLevel level, std::string_view message);

template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_message(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_message(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_message(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_message(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace titanium
