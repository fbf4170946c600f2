// Log lines in torchtitan's format: `[titan] 2026-01-31 12:00:00,123 - root - INFO - message`, or one JSON object each:
// `{"time":"2026-01-31T12:00:00.123Z","level":"INFO","source":"titanium","rank":0,"step":10,"message":"..."}`.
// Nothing is written until the program says where to: the library itself never touches stdout.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace titanium {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

enum class LogFormat { kText, kJson };

// Sends all log lines of at least `level` to stdout. Colours are the caller's business: messages are written as they
// are, except that JSON has none.
void log_to_stdout(LogLevel level, LogFormat format = LogFormat::kText);
// The format of the last call of log_to_stdout; kText before it.
LogFormat log_format();

// What JSON lines say of their origin from now on. Until then `rank` and `step` are null.
void set_log_rank(int rank);
void set_log_step(int64_t step);

// What stands in one JSON line besides the time, which is now.
struct LogRecord {
  LogLevel level = LogLevel::kInfo;
  std::string_view source = "titanium";  // "titanium", "launcher", "nccl", or "stdout" and "stderr" for other programs
  std::optional<int> rank = std::nullopt;
  std::optional<int64_t> step = std::nullopt;
  std::string_view message = {};  // any bytes; colours are taken out, and what is not UTF-8 becomes U+FFFD
};
// Without a newline.
std::string to_json_line(const LogRecord& record);

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
