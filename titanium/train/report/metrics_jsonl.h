// metrics.jsonl: one JSON object for each logged step and each validation, for scripts.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "titanium/base/files/growing_file.h"
#include "titanium/train/report/expert_balance.h"
#include "titanium/train/task/task.h"

namespace titanium::train {

struct JsonlRecord {
  int64_t step = 0;
  double loss = 0;
  double max_loss = 0;
  double grad_norm = 0;
  double lr = 0;
  double tps = 0;
  double tflops = 0;
  std::optional<double> mfu = std::nullopt;           // percent
  double memory_gib = 0;                              // reserved by the allocator; on the CPU of the whole process
  std::optional<double> memory_active_gib = {};       // of it, in tensors; not known on the CPU
  int64_t tokens = 0;                                 // seen by all ranks since the first step
  double time_s = 0;                                  // since this process began to train
  double step_s = 0;                                  // mean of the steps since the last record
  double data_wait_percent = 0;                       // of the time since then
  double unix_s = 0;                                  // when it was written
  std::optional<double> images_per_s = std::nullopt;  // left out where samples are no images
  std::vector<ExpertBalance> experts = {};            // left out where there are none
  std::vector<SourceTokens> tokens_by_source = {};    // likewise
};

class MetricsJsonl {
 public:
  // A run that resumes after `resumed_step` keeps the file's lines up to that step and drops later ones, which it will
  // train again; 0 starts afresh. Throws Error when the file cannot be written.
  MetricsJsonl(const std::filesystem::path& path, int64_t resumed_step);

  // Nine significant digits; what is not finite, or not known, is null. The line is in the file when this returns;
  // while the disk is full the run goes on, and the lines follow later (base/files/growing_file.h).
  void write(const JsonlRecord& record);
  // {"step", "validation_loss", "set", "unix_s"}, likewise; without "set" where that is empty.
  void write_validation(int64_t step, double loss, const std::string& set, double unix_s);

 private:
  std::unique_ptr<GrowingFile> file_;
};

}  // namespace titanium::train
