#include "titanium/base/log.h"

#include <fmt/chrono.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>

namespace titanium {
namespace {

std::atomic<LogFormat> current_format = LogFormat::kText;
std::atomic<int> current_rank = -1;
std::atomic<int64_t> current_step = -1;

// Python's logging spells the levels in capitals.
std::string_view level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "DEBUG";
    case LogLevel::kInfo:
      return "INFO";
    case LogLevel::kWarning:
      return "WARNING";
    case LogLevel::kError:
      return "ERROR";
  }
  return "INFO";
}

LogLevel from_spdlog(spdlog::level::level_enum level) {
  return level == spdlog::level::debug  ? LogLevel::kDebug
         : level == spdlog::level::info ? LogLevel::kInfo
         : level == spdlog::level::warn ? LogLevel::kWarning
                                        : LogLevel::kError;
}

class LevelName : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string_view name = level_name(from_spdlog(message.level));
    out.append(name.data(), name.data() + name.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<LevelName>(); }
};

class JsonLine : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    LogRecord record{.level = from_spdlog(message.level), .message = {message.payload.data(), message.payload.size()}};
    if (current_rank < 0) record.source = "launcher";  // the only process that logs and has no rank
    if (current_rank >= 0) record.rank = current_rank;
    if (current_step >= 0) record.step = current_step;
    const std::string line = to_json_line(record) + "\n";
    out.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<formatter> clone() const override { return std::make_unique<JsonLine>(); }
};

std::unique_ptr<spdlog::formatter> text_line() {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<LevelName>('N').set_pattern("[titan] %Y-%m-%d %H:%M:%S,%e - root - %N - %v");
  return formatter;
}

// `text` without the sequences that set colours: ESC [ ... letter.
std::string without_colors(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 2) != "\x1b[") {
      plain += text[i];
      continue;
    }
    i += 2;
    while (i < text.size() && (text[i] < '@' || text[i] > '~')) ++i;
  }
  return plain;
}

template <typename T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

std::shared_ptr<spdlog::logger>& logger() {
  static auto instance = std::make_shared<spdlog::logger>("titan", std::make_shared<spdlog::sinks::null_sink_mt>());
  return instance;
}

}  // namespace

void log_to_stdout(LogLevel level, LogFormat format) {
  current_format = format;
  logger() = std::make_shared<spdlog::logger>("titan", std::make_shared<spdlog::sinks::stdout_sink_mt>());
  logger()->set_formatter(format == LogFormat::kJson ? std::unique_ptr<spdlog::formatter>(std::make_unique<JsonLine>())
                                                     : text_line());
  logger()->set_level(to_spdlog(level));
  logger()->flush_on(spdlog::level::debug);
}

LogFormat log_format() { return current_format; }

void set_log_rank(int rank) { current_rank = rank; }

void set_log_step(int64_t step) { current_step = step; }

std::string to_json_line(const LogRecord& record) {
  const auto now = std::chrono::system_clock::now();
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  const nlohmann::ordered_json line = {
      {"time", fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(milliseconds / 1000), milliseconds % 1000)},
      {"level", level_name(record.level)},
      {"source", record.source},
      {"rank", or_null(record.rank)},
      {"step", or_null(record.step)},
      {"message", without_colors(record.message)}};
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void log_message(LogLevel level, std::string_view message) { logger()->log(to_spdlog(level), message); }

}  // namespace titanium
