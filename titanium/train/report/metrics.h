// What a run reports: it counts between log steps, and for a log step computes, logs and writes.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "titanium/observe/event_file.h"
#include "titanium/observe/wandb/wandb_run.h"
#include "titanium/train/report/expert_balance.h"
#include "titanium/train/report/memory_monitor.h"
#include "titanium/train/report/metrics_jsonl.h"
#include "titanium/train/report/metrics_line.h"
#include "titanium/train/report/run_observer.h"

namespace titanium::train {

struct MetricsOptions {
  int64_t log_freq = 10;
  bool color = true;
  bool enable_tensorboard = false;
  std::filesystem::path dump_folder = "outputs";
  std::string save_tb_folder = "tb";
  bool enable_jsonl = true;
  std::optional<observe::WandbSettings> wandb = std::nullopt;  // none: no Weights & Biases run
  std::string config_json = "{}";                              // for that run
  bool is_metrics_rank = true;                                 // this rank writes metric files
  bool save_for_all_ranks = false;                             // and so do all others, in folders of their own
  int rank = 0;
  RunObserver* observer = nullptr;  // outlives the metrics; may be null
  int64_t resumed_step = 0;         // the last step of the checkpoint that the run goes on from
  double flops_per_token = 0;
  int64_t tokens_per_image = 0;                     // 0: the run does not train on images
  std::optional<double> peak_flops = std::nullopt;  // of the device; none on a CPU, which claims no MFU
  int64_t non_data_parallel_size = 1;               // ranks that share one rank's tokens: cp * tp * pp
};

// What the trainer knows of a log step, from all ranks.
struct StepResults {
  int64_t step = 0;
  double loss = 0;       // mean over the valid tokens of all ranks
  double max_loss = 0;   // of the rank with the largest mean
  double grad_norm = 0;  // before clipping
  double lr = 0;
  int64_t tokens_seen = 0;
  double finished = 0;                              // when the device was done with it, on the clock of the sources
  std::vector<ExpertBalance> experts = {};          // of each layer that has some
  std::vector<SourceTokens> tokens_by_source = {};  // read since the beginning of the run, where data is mixed
};

// What happened from one log step to the next.
struct IntervalCounts {
  int64_t tokens = 0;          // that this rank trained on
  double loading_seconds = 0;  // that it waited for batches
  int64_t fetches = 0;
  MemoryPeak memory;
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
  // The run has ended well; Weights & Biases distinguishes that.
  void finish();

  // Call right before the first step: what came before (building, loading) counts in no rate.
  void start();

  bool should_log(int64_t step) const { return step == 1 || step % options_.log_freq == 0; }

  // After each step: the tokens that this rank trained on, and how long it waited for a batch.
  void count_tokens(int64_t tokens) { interval_.counts.tokens += tokens; }
  void count_data_loading(double seconds);

  // After a log step: what was counted up to it, that step included. What is counted from now on belongs to the next
  // log step, also if this one is logged later.
  IntervalCounts end_interval();
  // Computes the rates from the last logged step until this one was finished, logs the line and writes the files.
  void log(const StepResults& results, const IntervalCounts& counts);

  double now() const { return sources_.clock(); }

  // Validation has an interval of its own, and takes no time from the training's.
  void begin_validation();
  // With several sets, `set` names the one that the loss is of.
  void log_validation(int64_t step, double loss, const std::string& set = "");
  // Instead of a loss: what the model has drawn since begin_validation(), if anything, for the files.
  void log_images(int64_t step, std::span<const observe::ShownImage> images);

 private:
  struct Interval {
    double begin = 0;
    IntervalCounts counts;
  };
  // The rates of the steps since the last logged one.
  struct Rates {
    double seconds = 0;  // since the last one
    double tps = 0;
    double tflops = 0;
    std::optional<double> mfu;
    double data_wait_percent = 0;
  };
  void open_files();
  Rates rates(const StepResults& results, const IntervalCounts& counts) const;
  double tokens_per_second(int64_t tokens, double seconds) const;
  std::optional<double> images_per_second(double tps) const;  // per device, as tps; none without images
  std::vector<observe::Scalar> scalars(const StepResults& results, const IntervalCounts& counts,
                                       const Rates& rates) const;
  void write_records(const StepResults& results, const IntervalCounts& counts, const Rates& rates);
  void log_sources(const StepResults& results) const;
  void begin_interval();
  void end_validation();

  MetricsOptions options_;
  MetricsSources sources_;
  const Colors& colors_;
  std::vector<std::unique_ptr<observe::ScalarWriter>> writers_;
  observe::WandbRun* wandb_ = nullptr;  // one of the writers
  std::unique_ptr<MetricsJsonl> jsonl_, rank_jsonl_;
  int64_t last_logged_ = 0;
  double started_ = 0;
  Interval interval_;
  Interval training_;  // set aside during validation
};

}  // namespace titanium::train
