#include "titanium/train/report/metrics.h"

#include <fmt/chrono.h>

#include <chrono>
#include <ctime>
#include <utility>

#include "titanium/base/log.h"

namespace titanium::train {
namespace {

std::filesystem::path tensorboard_folder(const MetricsOptions& options) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  return options.dump_folder / options.save_tb_folder / fmt::format("{:%Y%m%d-%H%M}", local);
}

void add_experts(const std::vector<ExpertBalance>& layers, std::vector<Scalar>& scalars) {
  for (const ExpertBalance& layer : layers) {
    const std::string prefix = fmt::format("experts/layer_{}/", layer.layer);
    scalars.push_back({prefix + "max_over_mean", layer.max_over_mean});
    scalars.push_back({prefix + "entropy", layer.entropy});
    scalars.push_back({prefix + "dead", static_cast<double>(layer.dead)});
  }
}

}  // namespace

MetricsSources real_sources(MemoryMonitor& monitor) {
  return {.clock =
              [] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); },
          .memory_peak = [&monitor] { return monitor.peak(); },
          .reset_memory_peak = [&monitor] { monitor.reset(); }};
}

Metrics::Metrics(const MetricsOptions& options, MetricsSources sources)
    : options_(options), sources_(std::move(sources)), colors_(options.color ? kColors : kNoColors) {
  if (options.enable_jsonl && options.is_metrics_rank) {
    jsonl_ = std::make_unique<MetricsJsonl>(options.dump_folder / "metrics.jsonl", options.resumed_step);
  }
  if (options.enable_tensorboard && options.is_metrics_rank) {
    const std::filesystem::path folder = tensorboard_folder(options);
    events_ = std::make_unique<EventFile>(folder);
    log_info("TensorBoard logging enabled. Logs will be saved at {}", folder.string());
  }
  start();
}

void Metrics::start() {
  started_ = sources_.clock();
  begin_interval();
}

void Metrics::begin_interval() {
  interval_ = {};
  interval_.begin = sources_.clock();
  sources_.reset_memory_peak();
}

void Metrics::count_data_loading(double seconds) {
  interval_.counts.loading_seconds += seconds;
  ++interval_.counts.fetches;
}

IntervalCounts Metrics::end_interval() {
  interval_.counts.memory = sources_.memory_peak();
  sources_.reset_memory_peak();
  return std::exchange(interval_.counts, {});
}

double Metrics::tokens_per_second(int64_t tokens, double seconds) const {
  return static_cast<double>(tokens) / (seconds * static_cast<double>(options_.non_data_parallel_size));
}

void Metrics::log(const StepResults& results, const IntervalCounts& counts) {
  const double seconds = results.finished - interval_.begin;
  const double tps = tokens_per_second(counts.tokens, seconds);
  const double flops = options_.flops_per_token * tps;
  const double tflops = flops / 1e12;
  const auto mfu = options_.peak_flops ? std::optional(100 * flops / *options_.peak_flops) : std::nullopt;
  const MemoryPeak& memory = counts.memory;
  log_info("{}", step_line({.step = results.step,
                            .loss = results.loss,
                            .grad_norm = results.grad_norm,
                            .memory_gib = memory.max_reserved_gib,
                            .memory_percent = memory.max_reserved_percent,
                            .tps = tps,
                            .tflops = tflops,
                            .mfu = mfu},
                           colors_));
  if (events_) {
    const double fetches = std::max<double>(1, static_cast<double>(counts.fetches));
    std::vector<Scalar> scalars = {
        {"loss_metrics/global_avg_loss", results.loss},
        {"loss_metrics/global_max_loss", results.max_loss},
        {"grad_norm", results.grad_norm},
        {"throughput(tps)", tps},
        {"tflops", tflops},
        {"time_metrics/end_to_end(s)", seconds / static_cast<double>(options_.log_freq)},
        {"time_metrics/data_loading(s)", counts.loading_seconds / fetches},
        {"time_metrics/data_loading(%)", 100 * counts.loading_seconds / seconds},
        {"memory/max_active(GiB)", memory.max_active_gib},
        {"memory/max_active(%)", memory.max_active_percent},
        {"memory/max_reserved(GiB)", memory.max_reserved_gib},
        {"memory/max_reserved(%)", memory.max_reserved_percent},
        {"memory/num_alloc_retries", static_cast<double>(memory.alloc_retries)},
        {"memory/num_ooms", static_cast<double>(memory.ooms)},
        {"n_tokens_seen", static_cast<double>(results.tokens_seen)},
        {"lr", results.lr},
    };
    if (mfu) scalars.push_back({"mfu(%)", *mfu});
    add_experts(results.experts, scalars);
    events_->write(results.step, scalars);
  }
  if (jsonl_) {
    jsonl_->write({results.step, results.loss, results.max_loss, results.grad_norm, results.lr, tps, tflops, mfu,
                   memory.max_reserved_gib, memory.max_active_gib, results.tokens_seen, results.finished - started_,
                   results.experts});
  }
  interval_.begin = results.finished;
}

void Metrics::begin_validation() {
  training_ = interval_;
  begin_interval();
}

void Metrics::log_validation(int64_t step, double loss) {
  const double tps = tokens_per_second(interval_.counts.tokens, sources_.clock() - interval_.begin);
  const MemoryPeak memory = sources_.memory_peak();
  log_info("{}", validation_line({.step = step,
                                  .loss = loss,
                                  .memory_gib = memory.max_reserved_gib,
                                  .memory_percent = memory.max_reserved_percent,
                                  .tps = tps},
                                 colors_));
  if (events_) {
    const std::vector<Scalar> scalars = {
        {"validation_metrics/loss", loss},
        {"validation_metrics/throughput(tps)", tps},
        {"validation_metrics/memory/max_active(GiB)", memory.max_active_gib},
        {"validation_metrics/memory/max_active(%)", memory.max_active_percent},
        {"validation_metrics/memory/max_reserved(GiB)", memory.max_reserved_gib},
        {"validation_metrics/memory/max_reserved(%)", memory.max_reserved_percent},
    };
    events_->write(step, scalars);
  }
  const double validation_began = interval_.begin;
  begin_interval();
  training_.begin += interval_.begin - validation_began;
  interval_ = training_;
}

}  // namespace titanium::train
