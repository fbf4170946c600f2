#include "titanium/observe/run/run_log.h"

#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "titanium/base/files/file.h"
#include "titanium/base/text/json.h"
#include "titanium/config/dump.h"
#include "titanium/config/schema/schema.h"
#include "titanium/schedule/csv.h"

namespace titanium::observe {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kFile = "run.jsonl";
constexpr const char* kRemedy = "Check job.dump_folder and its permissions.";

Json make_event(const char* name) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {{"event", name}, {"unix_s", std::chrono::duration_cast<std::chrono::milliseconds>(now).count() / 1000.0}};
}

std::string to_line(const Json& event) { return event.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

std::string host_name() {
  std::array<char, 256> name = {};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

// The options that differ from their defaults.
Json changed_options(const config::LoadedConfig& loaded) {
  const JobConfig defaults;
  Json list = Json::array();
  for (const config::Option& option : config::schema().options()) {
    if (option.is_default(loaded.config)) continue;
    list.push_back({{"name", option.name()},
                    {"value", config::to_short_text(option.get(loaded.config))},
                    {"default", config::to_short_text(option.get(defaults))},
                    {"source", loaded.source(option.name())}});
  }
  return list;
}

Json start_event(const config::LoadedConfig& loaded, const RunStart& start) {
  const JobConfig& config = loaded.config;
  Json event = make_event("start");
  event["step"] = start.step;
  event["restarts"] = start.restarts;
  event["total_steps"] = config.training.steps;
  event["log_freq"] = config.metrics.log_freq;
  event["description"] = config.job.description;
  event["model"] = config.model.name + " " + config.model.flavor;
  event["planned_memory_gib"] = start.planned_memory_gib;
  event["environment"] = {{"ranks", std::to_string(start.world_size)},
                          {"layout", start.layout},
                          {"device", start.device},
                          {"libraries", start.versions},
                          {"host", host_name()},
                          {"process", std::to_string(::getpid())}};
  if (start.pipeline) {
    event["pipeline"] = {{"schedule", config.parallelism.pipeline_parallel_schedule},
                         {"csv", schedule::to_csv(*start.pipeline)}};
  }
  event["changed"] = changed_options(loaded);
  event["config"] = parse_ordered_json(config::to_json(loaded));
  return event;
}

}  // namespace

RunLog::RunLog(const std::filesystem::path& folder, const config::LoadedConfig& loaded, const RunStart& start)
    : folder_(folder) {
  const std::filesystem::path path = folder / kFile;
  const bool anew = start.step == 0 && start.restarts == 0;
  if (anew || !std::filesystem::exists(path)) write_file_atomically(path, "");
  file_ = std::make_unique<GrowingFile>(path, kRemedy);
  append(start_event(loaded, start));
}

void RunLog::append(const Json& event) {
  const std::lock_guard lock(mutex_);
  file_->append(to_line(event));
}

void RunLog::validation(int64_t step, double loss, double tps, const std::string& set) {
  Json event = make_event("validation");
  event.update({{"step", step}, {"loss", loss}, {"tps", tps}});
  if (!set.empty()) event["set"] = set;
  append(event);
}

void RunLog::images(int64_t step, std::span<const ShownImage> images) {
  Json event = make_event("images");
  event["step"] = step;
  event["images"] = Json::array();
  for (const ShownImage& image : images) {
    const std::filesystem::path inside = image.file.lexically_relative(folder_);
    const bool is_outside = inside.empty() || *inside.begin() == "..";
    event["images"].push_back({{"file", (is_outside ? image.file : inside).string()}, {"caption", image.caption}});
  }
  append(event);
}

void RunLog::checkpoint(int64_t step, double seconds) {
  Json event = make_event("checkpoint");
  event.update({{"step", step}, {"seconds", seconds}});
  append(event);
}

void RunLog::end(int64_t step, RunEnd how) {
  Json event = make_event("end");
  event.update({{"step", step}, {"how", how == RunEnd::kCompleted ? "completed" : "stopped"}});
  append(event);
}

void append_run_error(const std::filesystem::path& folder, int rank, const std::string& message) noexcept {
  try {
    Json event = make_event("error");
    event.update({{"rank", rank}, {"message", message}});
    if (std::filesystem::exists(folder)) GrowingFile(folder / kFile, kRemedy).append(to_line(event));
  } catch (const std::exception&) {
  }
}

}  // namespace titanium::observe
