// titanium watch: shows a run while it goes on, in a browser or a terminal.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "titanium/base/error.h"
#include "titanium/base/text/printable.h"
#include "titanium/cli/command_line.h"
#include "titanium/observe/http_server.h"
#include "titanium/observe/page/page.h"
#include "titanium/observe/page/text_view.h"

namespace titanium::cli {
namespace {

using Runs = std::vector<std::unique_ptr<observe::RunFolder>>;

struct Options {
  std::vector<std::string> folders;
  std::string address = "127.0.0.1";
  int port = 8090;
  bool text = false;
};

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// A step of the query, or `otherwise`.
double step_of(const observe::HttpRequest& request, const char* key, double otherwise) {
  const auto found = request.query.find(key);
  if (found == request.query.end()) return otherwise;
  char* end = nullptr;
  const double value = std::strtod(found->second.c_str(), &end);
  return end != found->second.c_str() && *end == '\0' ? value : otherwise;
}

observe::HttpResponse answer(const Runs& runs, const observe::HttpRequest& request) {
  if (request.path == "/") return {.type = "text/html; charset=utf-8", .body = observe::make_page("")};
  const bool images_alone = request.path == "/images.json";
  if (request.path != "/data.json" && !images_alone) {
    return {.status = 404, .body = "There is only /, /data.json and /images.json.\n"};
  }
  for (const auto& run : runs) run->refresh();
  observe::PageOptions options;
  if (images_alone) return {.type = "application/json", .body = observe::image_data(runs, options)};
  options.image_bytes = 0;  // the page asks again and again, and for images when there are more
  options.from = step_of(request, "from", options.from);
  options.to = step_of(request, "to", options.to);
  return {.type = "application/json", .body = observe::page_data(runs, options)};
}

void serve(const Runs& runs, const Options& options) {
  sigset_t stops;
  sigemptyset(&stops);
  sigaddset(&stops, SIGINT);
  sigaddset(&stops, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &stops, nullptr);  // also for the server's thread
  const observe::HttpServer server(
      options.address, options.port, [&](const observe::HttpRequest& request) { return answer(runs, request); },
      "--port");
  fmt::print("Watching {} run{} at {}/ until Ctrl-C\n", runs.size(), runs.size() == 1 ? "" : "s", server.url());
  std::fflush(stdout);
  int signal = 0;
  ::sigwait(&stops, &signal);
}

// What is shown of all runs; false when none of them goes on.
bool draw(const Runs& runs) {
  bool goes_on = false;
  std::string screen;
  for (const auto& run : runs) {
    run->refresh();
    const observe::RunSummary summary = observe::summarize(run->data(), unix_seconds());
    goes_on |= summary.state == observe::RunState::kStarting || summary.state == observe::RunState::kRunning ||
               summary.state == observe::RunState::kSilent;
    if (runs.size() > 1) screen += printable(run->name(), 80) + "\n";
    screen += observe::loss_plot(run->data()) + observe::status_line(summary) + "\n";
    const auto& error = run->data().error;
    if (error && summary.state == observe::RunState::kFailed) {
      screen += fmt::format("rank {}: {}\n", error->rank, printable(error->message, 2000));
    }
  }
  fmt::print("{}", screen);
  std::fflush(stdout);
  return goes_on;
}

void show_text(const Runs& runs) {
  if (::isatty(STDOUT_FILENO) != 1) {
    draw(runs);
    return;
  }
  do {
    fmt::print("\x1b[H\x1b[2J");
  } while (draw(runs) && (std::this_thread::sleep_for(std::chrono::seconds(2)), true));
}

}  // namespace

int run_watch(Arguments args) {
  Options options;
  CommandLine app(
      "Shows a run while it goes on, as the page of titanium report, from a small server on this machine. It reads "
      "the\n"
      "run's files and nothing else, so the run may be anywhere that this machine can read.",
      "watch");
  app.option("RUN_FOLDER", options.folders, "job.dump_folder of a run; several are drawn over each other").required();
  app.option("--port", options.port, "Port of the page; 0: a free one").between(0, 65535).shows_default();
  app.option("--address", options.address, "Address of this machine at which the page is to be had").shows_default();
  app.flag("--text", options.text,
           "Draw the loss and a status line in the terminal instead, again every 2 s while the run goes on; once if "
           "the output is no terminal");
  if (!app.parse(args)) return 0;
  Runs runs;
  for (const std::string& folder : options.folders) runs.push_back(std::make_unique<observe::RunFolder>(folder));
  options.text ? show_text(runs) : serve(runs, options);
  return 0;
}

}  // namespace titanium::cli
