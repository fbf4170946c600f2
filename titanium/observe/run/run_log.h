// run.jsonl: what happened in a run besides its steps, one JSON object for each event. Together with metrics.jsonl it
// is all that `titanium report` and `titanium watch` read.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "titanium/base/files/growing_file.h"
#include "titanium/config/reading/load_config.h"
#include "titanium/observe/shown_image.h"
#include "titanium/schedule/table.h"

namespace titanium::observe {

// How a run begins, or goes on.
struct RunStart {
  int64_t step = 0;      // of the checkpoint that it goes on from
  int64_t restarts = 0;  // by the launcher, before this start
  int64_t world_size = 1;
  std::string layout;  // "fsdp 8, tp 2"
  std::string device;  // "CUDA capacity: NVIDIA H200 with 139.81GiB memory"
  std::string versions;
  double planned_memory_gib = 0;
  std::optional<schedule::Table> pipeline = std::nullopt;
};

enum class RunEnd { kCompleted, kStopped };

// Every object has "event" and "unix_s". From any thread; a full disk stops nothing (base/files/growing_file.h).
class RunLog {
 public:
  // Goes on at the end of `folder`/run.jsonl; a run that begins anew, and not because the launcher has restarted it,
  // replaces the file. Throws Error when it cannot be written.
  RunLog(const std::filesystem::path& folder, const config::LoadedConfig& loaded, const RunStart& start);

  // `set` is empty where there is one set alone.
  void validation(int64_t step, double loss, double tps, const std::string& set);
  // Files inside of the run's folder are named by their paths from there.
  void images(int64_t step, std::span<const ShownImage> images);
  void checkpoint(int64_t step, double seconds);
  void end(int64_t step, RunEnd how);

 private:
  void append(const nlohmann::ordered_json& event);

  std::filesystem::path folder_;
  std::mutex mutex_;
  std::unique_ptr<GrowingFile> file_;
};

// An "error" event of a rank that need not be the one that keeps the log. Never throws: the error itself matters more.
void append_run_error(const std::filesystem::path& folder, int rank, const std::string& message) noexcept;

}  // namespace titanium::observe
