// titanium doctor: looks at what a run depends on, before it starts.
#include "titanium/doctor/doctor.h"

#include <unistd.h>

#include <cstdio>

#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/cli/command_line.h"
#include "titanium/cli/commands/train.h"

namespace titanium::cli {
namespace {

constexpr const char* kDescription =
    "Looks at the machine, its devices, the links between ranks, the checkpoint folder, data and tokenizer, and prints "
    "one page\n"
    "with a remedy for each finding. Alone, or as the ranks of a job: titanium launch --nproc-per-node 8 -- doctor.\n"
    "All other options are those of titanium train, whose run is looked at then: --job.config_file FILE, --section.key "
    "value ...\n"
    "Exit code: 0 when the run can start, 1 when there are errors.";

struct Request {
  bool json = false;
  bool strict = false;
  std::string output;
  int64_t storage_mib = 64;
  int64_t timeout = 120;
  std::optional<double> expected_gbs;
};

void declare_options(CommandLine& app, Request& request) {
  app.flag("--json", request.json, "Print JSON instead of a page");
  app.option("--output", request.output, "Write to this file instead of stdout");
  app.flag("--strict", request.strict, "Warnings are errors");
  app.option("--storage-mib", request.storage_mib,
             "MiB that each rank writes into the checkpoint folder and reads again")
      .positive()
      .shows_default();
  app.option("--expect-gbs", request.expected_gbs,
             "Bus bandwidth in GB/s that collectives have to reach (default: known for the GPUs of one node)")
      .positive();
  app.option("--timeout", request.timeout, "Seconds to wait for the other ranks").positive().shows_default();
}

void write(const Request& request, const doctor::Report& report) {
  const std::string text = request.json ? json_of(report) : page_of(report);
  if (request.output.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  } else {
    write_file_atomically(request.output, text);
  }
}

// Becomes `titanium COMMAND...` in this process, so that whoever started it looks after the same one.
[[noreturn]] void become(Arguments command) {
  std::string program = "titanium";
  std::vector<std::string> words(command.begin(), command.end());
  std::vector<char*> pointers = {program.data()};
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv("/proc/self/exe", pointers.data());
  throw Error(fmt::format("titanium {} could not be started after doctor.", words.at(0)));
}

}  // namespace

int run_doctor(Arguments args) {
  const auto then = std::ranges::find(args, "--then");
  const Arguments command = then == args.end() ? Arguments() : Arguments(then + 1, args.end());
  Request request;
  CommandLine app(kDescription, "doctor");
  app.take_run_options();
  declare_options(app, request);
  app.mention("--then", "Become titanium COMMAND... when the run can start; its options are those that are looked at")
      .takes("COMMAND...");
  if (!app.parse(args.first(static_cast<size_t>(then - args.begin())))) return 0;
  std::vector<std::string> options = app.run_options();
  if (then != args.end()) {
    if (command.empty() || command[0] != "train" || !options.empty()) {
      throw UsageError("doctor --then is followed by train and its options, and no option of train stands before it.");
    }
    options.assign(command.begin() + 1, command.end());
  }
  doctor::Request examined;
  if (!options.empty()) examined.run = config::load_config(options);
  examined.environment = comm::read_environment();
  examined.storage_bytes = request.storage_mib << 20;
  examined.expected_gbs = request.expected_gbs;
  examined.timeout = std::chrono::seconds(request.timeout);
  examined.on_peer_failure = end_after_peer_failure;
  const doctor::Diagnosis diagnosis = doctor::examine(examined);
  if (diagnosis.report) write(request, *diagnosis.report);
  if (diagnosis.errors > 0 || (request.strict && diagnosis.warnings > 0)) return 1;
  if (!command.empty()) become(command);
  return 0;
}

}  // namespace titanium::cli
