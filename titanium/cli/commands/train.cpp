#include "titanium/cli/commands/train.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sstream>

#include "titanium/base/log.h"
#include "titanium/base/terminal/terminal.h"
#include "titanium/cli/error_sentence.h"
#include "titanium/cli/help.h"
#include "titanium/cli/on_signal.h"
#include "titanium/comm/environment.h"
#include "titanium/comm/flight_recorder.h"
#include "titanium/config/reading/load_config.h"
#include "titanium/train/local_assets.h"
#include "titanium/train/start_world.h"
#include "titanium/train/trainer.h"

namespace titanium::cli {
namespace {

std::atomic<bool> stop_requested = false;
std::atomic<bool> save_requested = false;
std::atomic<unsigned> grace_seconds = 60;
std::function<void()> dump_flights;  // set once the configuration is known

// Ends the run after the current step, once that is saved, or when the time for that is over. Further SIGTERMs are the
// same request: SLURM signals every process of a step, and the launcher hands its own on. A second SIGINT is a person
// who does not want to wait.
void request_stop(int signal) {
  if (signal == SIGINT) std::signal(SIGINT, SIG_DFL);
  if (!stop_requested.exchange(true)) ::alarm(grace_seconds);
}

void request_save(int) { save_requested = true; }

// Only calls that a signal handler may make.
void end_after_grace(int) {
  constexpr std::string_view kLine =
      "titanium: the step and its checkpoint did not end within checkpoint.grace_seconds after the signal; the next "
      "start goes on from the last checkpoint that was saved. Allow more time, or save more often.\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kLine.data(), kLine.size());
  std::_Exit(1);
}

// LOG_RANK lists the ranks whose output is shown, as torchtitan's launcher has it. A launcher that relays the output
// does this itself, and may keep the rest in files.
bool output_is_shown() {
  if (std::getenv("TORCHELASTIC_RUN_ID") != nullptr) return true;
  const char* shown = std::getenv("LOG_RANK");
  std::istringstream ranks(shown == nullptr ? "0" : shown);
  const std::string own = std::to_string(comm::read_environment().rank);
  for (std::string rank; std::getline(ranks, rank, ',');) {
    if (rank == own) return true;
  }
  return false;
}

// LOGLEVEL as torchrun's users know it.
LogLevel log_level() {
  const char* level = std::getenv("LOGLEVEL");
  return level != nullptr && std::string_view(level) == "DEBUG" ? LogLevel::kDebug : LogLevel::kInfo;
}

// NCCL's watchdog throws on a thread of its own when a collective times out.
[[noreturn]] void end_after_unhandled_exception() {
  std::string cause = "of an unknown error";
  try {
    if (const std::exception_ptr current = std::current_exception()) std::rethrow_exception(current);
  } catch (const std::exception& error) {
    const std::string text = error_sentence(error);
    cause = text.substr(0, text.find('\n'));
  } catch (...) {
  }
  if (dump_flights) dump_flights();
  end_after_peer_failure(comm::stop_line(comm::read_environment().rank, cause));
}

}  // namespace

void end_after_peer_failure(const std::string& line) {
  fmt::print(stderr, "titanium: {}\n", line);
  std::fflush(nullptr);
  std::_Exit(1);
}

void show_log(LogFormat format) {
  set_log_rank(comm::read_environment().rank);
  output_is_shown() ? log_to_stdout(log_level(), format) : silence_progress();
}

int run_train(Arguments args) {
  if (std::ranges::any_of(args, [](const std::string& arg) { return arg == "--help" || arg == "-h"; })) {
    show_help(train_help());
    return 0;
  }
  show_log();
  std::set_terminate(end_after_unhandled_exception);
  std::signal(SIGINT, request_stop);
  std::signal(SIGTERM, request_stop);
  std::signal(SIGUSR1, request_save);
  std::signal(SIGALRM, end_after_grace);
  const config::LoadedConfig loaded = train::with_local_assets(config::load_config(args));
  if (loaded.config.log.format == "json") show_log(LogFormat::kJson);
  grace_seconds = static_cast<unsigned>(loaded.config.checkpoint.grace_seconds);
  dump_flights = [config = loaded.config] { train::dump_flight_recorder(config); };
  const OnSignal on_request(SIGUSR2, dump_flights);
  train::train(loaded, {stop_requested, end_after_peer_failure, /*on_built=*/nullptr, &save_requested});
  return 0;
}

}  // namespace titanium::cli
