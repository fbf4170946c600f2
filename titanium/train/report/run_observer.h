// Tells people and scrapers about a run: the endpoint of metrics.port, and run.jsonl.
#pragma once

#include <memory>
#include <string>

#include "titanium/config/reading/load_config.h"
#include "titanium/observe/http_server.h"
#include "titanium/observe/run/run_log.h"
#include "titanium/observe/run/run_status.h"

namespace titanium::train {

// Works on the rank that reports metrics and does nothing on others. Thread safe.
class RunObserver {
 public:
  // Opens what the configuration asks for. Throws Error when a file or the port cannot be opened.
  RunObserver(const config::LoadedConfig& loaded, const observe::RunStart& start, bool is_metrics_rank);

  void step_finished(int64_t step);
  void logged(const observe::LoggedStep& values);
  // With several sets, `set` names the one that the loss is of.
  void validated(int64_t step, double loss, double tps, const std::string& set = "");
  void images_drawn(int64_t step, std::span<const observe::ShownImage> images);
  void checkpoint_saved(int64_t step, double seconds);
  void ended(int64_t step, observe::RunEnd how);

 private:
  std::unique_ptr<observe::RunStatus> status_;
  std::unique_ptr<observe::HttpServer> server_;  // asks `status_`
  std::unique_ptr<observe::RunLog> log_;
};

}  // namespace titanium::train
