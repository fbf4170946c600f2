#include "titanium/launch/failure.h"

#include <fmt/format.h>

#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "titanium/base/text/json.h"
#include "titanium/base/text/printable.h"

namespace titanium::launch {
namespace {

// "SIGTERM"
std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

}  // namespace

std::string ExitStatus::describe() const {
  return signal == 0 ? fmt::format("exit code {}", code) : signal_name(signal);
}

Failure Failure::lost_node(int node) {
  Failure failure;
  failure.node = node;
  failure.rank = -1;
  failure.exit = {1, 0};
  return failure;
}

std::string Failure::report(bool with_last_lines) const {
  if (rank < 0) return fmt::format("node {} is lost: its launcher has not been heard for a while.\n", node);
  std::string text = fmt::format("rank {} (node {}, process {}) failed first: {}.", rank, node, pid, exit.describe());
  if (exit.signal == SIGKILL) {
    text +=
        " If nobody sent it, the kernel did because the machine ran out of memory: see dmesg, and use fewer ranks on "
        "the "
        "node or less host memory.";
  }
  if (!log_folder.empty()) text += fmt::format(" Its whole output is in {} of node {}.", log_folder, node);
  if (!with_last_lines) return text + "\n";
  text += last_lines.empty() ? " It wrote nothing.\n" : " Its last lines:\n";
  for (const std::string& line : last_lines) text += fmt::format("[rank{}]:{}\n", rank, line);
  return text;
}

std::string Failure::to_json() const {
  const nlohmann::json json = {{"node", node},
                               {"rank", rank},
                               {"pid", pid},
                               {"code", exit.code},
                               {"signal", exit.signal},
                               {"stopped", stopped},
                               {"last_lines", last_lines},
                               {"log_folder", log_folder}};
  // Output need not be UTF-8.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::optional<Failure> Failure::from_json(const std::string& text) {
  constexpr size_t kLongest = 8 << 20;  // more than 20 of the longest lines
  if (text.size() > kLongest) return std::nullopt;
  try {
    const nlohmann::json json = parse_json(text);
    Failure failure;
    const auto number = [&](const char* name) {
      const int64_t value = integer_of(json.at(name));
      if (!std::in_range<int>(value)) throw JsonError(fmt::format("{} is out of range", name));
      return static_cast<int>(value);
    };
    failure.node = number("node");
    failure.rank = number("rank");
    failure.pid = number("pid");
    failure.exit = {number("code"), number("signal")};
    failure.stopped = json.at("stopped");
    failure.last_lines = json.at("last_lines");
    failure.log_folder = printable(json.at("log_folder").get<std::string>(), 4096);
    const bool possible = failure.rank >= -1 && failure.exit.code >= 0 && failure.exit.code <= 255 &&
                          failure.exit.signal >= 0 && failure.exit.signal < NSIG && !failure.exit.good();
    return possible ? std::optional(failure) : std::nullopt;
  } catch (const JsonError&) {
    return std::nullopt;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace titanium::launch
