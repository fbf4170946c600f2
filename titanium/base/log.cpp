#include "titanium/base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace titanium {
namespace {

// Python's logging spells the levels in capitals.
class LevelName : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string_view name = message.level == spdlog::level::debug  ? "DEBUG"
                                  : message.level == spdlog::level::info ? "INFO"
                                  : message.level == spdlog::level::warn ? "WARNING"
                                                                         : "ERROR";
    out.append(name.data(), name.data() + name.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<LevelName>(); }
};

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

void log_to_stdout(LogLevel level) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<LevelName>('N').set_pattern("[titan] %Y-%m-%d %H:%M:%S,%e - root - %N - %v");
  logger() = std::make_shared<spdlog::logger>("titan", std::make_shared<spdlog::sinks::stdout_sink_mt>());
  logger()->set_formatter(std::move(formatter));
  logger()->set_level(to_spdlog(level));
  logger()->flush_on(spdlog::level::debug);
}

void log_message(LogLevel level, std::string_view message) { logger()->log(to_spdlog(level), message); }

}  // namespace titanium
