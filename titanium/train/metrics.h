// What a run reports: it counts between log steps, and at a log step computes, logs and writes.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "titanium/train/event_file.h"
#include "titanium/train/memory_monitor.h"
#include "titanium/train/metrics_jsonl.h"
#include "titanium/train/metrics_line.h"

namespace titanium::train {

struct MetricsOptions {
  int64_t log_freq = 10;
  bool color = true;
  bool enable_tensorboard = false;
  std::filesystem::path dump_folder = "outputs";
  std::string save_tb_folder = "tb";
  bool enable_jsonl = true;
  bool is_metrics_rank = true;                    // this rank writes metrics.jsonl and TensorBoard files
  std::optional<int> rank_folder = std::nullopt;  // save_for_all_ranks: this rank's TensorBoard files go to rank_N
  int64_t resumed_step = 0;                       // the last step of the checkpoint that the run goes on from
  double flops_per_token = 0;
  std::optional<double> peak_flops = std::nullopt;  // of the device; none on a CPU, which claims no MFU
  int64_t non_data_parallel_size = 1;               // ranks that share one rank's tokens: cp * tp * pp
};

// What the trainer knows at a log step, from all ranks.
struct StepResults {
  int64_t step = 0;
  double loss = 0;       // mean over the valid tokens of all ranks
  double max_loss = 0;   // of the rank with the largest mean
  double grad_norm = 0;  // before clipping
  double lr = 0;
  int64_t tokens_seen = 0;
};

// Where time and memory come from; tests bring their own.
struct MetricsSources {
  std::function<double()> clock;  // seconds, from any origin
  std::function<MemoryPeak()> memory_peak;
  std::function<void()> reset_memory_peak;
};
// A steady clock and `monitor`, which outlives the metrics.
MetricsSources real_sources(MemoryMonitor& monitor);

class Metrics {
 public:
  // Opens the files. Throws Error when that fails.
  Metrics(const MetricsOptions& options, MetricsSources sources);

  // Call right before the first step: what came before (building, loading) counts in no rate.
  void start();

  bool should_log(int64_t step) const { return step == 1 || step % options_.log_freq == 0; }

  // Between logs: the tokens that this rank trained on, and how long it waited for a batch.
  void count_tokens(int64_t tokens) { interval_.tokens += tokens; }
  void count_data_loading(double seconds);

  // Computes the rates since the last log, logs the step line, writes the files and begins the next interval.
  void log(const StepResults& results);

  // Validation has an interval of its own, and takes no time from the training's.
  void begin_validation();
  void log_validation(int64_t step, double loss);

 private:
  struct Interval {
    double begin = 0;
    int64_t tokens = 0;
    double loading_seconds = 0;
    int64_t fetches = 0;
  };
  double tokens_per_second(double seconds) const;
  void begin_interval();

  MetricsOptions options_;
  MetricsSources sources_;
  const Colors& colors_;
  std::unique_ptr<EventFile> events_;
  std::unique_ptr<MetricsJsonl> jsonl_;
  double started_ = 0;
  Interval interval_;
  Interval training_;  // set aside during validation
};

}  // namespace titanium::train
