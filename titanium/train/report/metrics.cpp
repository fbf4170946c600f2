#include "titanium/train/report/metrics.h"

#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include <chrono>
#include <ctime>
#include <utility>

#include "titanium/base/log.h"
#include "titanium/base/text/thousands.h"

namespace titanium::train {
namespace {

using observe::Scalar;

// That of TensorBoard files and of the Weights & Biases run, as torchtitan has it.
std::filesystem::path writers_folder(const MetricsOptions& options) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  const auto folder = options.dump_folder / options.save_tb_folder / fmt::format("{:%Y%m%d-%H%M}", local);
  return options.save_for_all_ranks ? folder / fmt::format("rank_{}", options.rank) : folder;
}

// Where the id of the Weights & Biases run is kept for the next start.
std::filesystem::path id_file(const MetricsOptions& options) {
  return options.dump_folder /
         (options.save_for_all_ranks ? fmt::format("wandb_run_id.rank_{}", options.rank) : std::string("wandb_run_id"));
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void add_experts(const std::vector<ExpertBalance>& layers, std::vector<Scalar>& scalars) {
  for (const ExpertBalance& layer : layers) {
    const std::string prefix = fmt::format("experts/layer_{}/", layer.layer);
    scalars.push_back({prefix + "max_over_mean", layer.max_over_mean});
    scalars.push_back({prefix + "entropy", layer.entropy});
    scalars.push_back({prefix + "dead", static_cast<double>(layer.dead)});
  }
}

void add_sources(const std::vector<SourceTokens>& sources, std::vector<Scalar>& scalars) {
  for (const SourceTokens& source : sources)
    scalars.push_back({fmt::format("tokens_by_source/{}", source.name), static_cast<double>(source.tokens)});
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
  open_files();
  start();
}

void Metrics::open_files() {
  const auto open_jsonl = [&](const std::filesystem::path& path) {
    return std::make_unique<MetricsJsonl>(path, options_.resumed_step);
  };
  if (options_.enable_jsonl && options_.is_metrics_rank) jsonl_ = open_jsonl(options_.dump_folder / "metrics.jsonl");
  if (options_.enable_jsonl && options_.save_for_all_ranks) {
    rank_jsonl_ = open_jsonl(options_.dump_folder / "metrics_by_rank" / fmt::format("rank_{}.jsonl", options_.rank));
  }
  if (!options_.is_metrics_rank && !options_.save_for_all_ranks) return;
  const std::filesystem::path folder = writers_folder(options_);
  if (options_.wandb && options_.wandb->enabled) {
    auto run = std::make_unique<observe::WandbRun>(folder, *options_.wandb, options_.config_json, options_.resumed_step,
                                                   id_file(options_));
    log_info("WandB logging enabled");
    log_info("The run {} is written offline. Upload it with: wandb sync {}", run->id(), run->folder().string());
    wandb_ = run.get();
    writers_.push_back(std::move(run));
  }
  if (options_.enable_tensorboard) {
    writers_.push_back(std::make_unique<observe::EventFile>(folder));
    log_info("TensorBoard logging enabled. Logs will be saved at {}", folder.string());
  }
}

void Metrics::finish() {
  if (wandb_ != nullptr) wandb_->finish();
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

std::optional<double> Metrics::images_per_second(double tps) const {
  if (options_.tokens_per_image == 0) return std::nullopt;
  return tps / static_cast<double>(options_.tokens_per_image);
}

Metrics::Rates Metrics::rates(const StepResults& results, const IntervalCounts& counts) const {
  Rates rates{.seconds = results.finished - interval_.begin};
  rates.tps = tokens_per_second(counts.tokens, rates.seconds);
  const double flops = options_.flops_per_token * rates.tps;
  rates.tflops = flops / 1e12;
  if (options_.peak_flops) rates.mfu = 100 * flops / *options_.peak_flops;
  rates.data_wait_percent = 100 * counts.loading_seconds / rates.seconds;
  return rates;
}

std::vector<Scalar> Metrics::scalars(const StepResults& results, const IntervalCounts& counts,
                                     const Rates& rates) const {
  const MemoryPeak& memory = counts.memory;
  const double fetches = std::max<double>(1, static_cast<double>(counts.fetches));
  std::vector<Scalar> scalars = {
      {"loss_metrics/global_avg_loss", results.loss},
      {"loss_metrics/global_max_loss", results.max_loss},
      {"grad_norm", results.grad_norm},
      {"throughput(tps)", rates.tps},
      {"tflops", rates.tflops},
      {"time_metrics/end_to_end(s)", rates.seconds / static_cast<double>(options_.log_freq)},
      {"time_metrics/data_loading(s)", counts.loading_seconds / fetches},
      {"time_metrics/data_loading(%)", rates.data_wait_percent},
      {"memory/max_active(GiB)", memory.max_active_gib},
      {"memory/max_active(%)", memory.max_active_percent},
      {"memory/max_reserved(GiB)", memory.max_reserved_gib},
      {"memory/max_reserved(%)", memory.max_reserved_percent},
      {"memory/num_alloc_retries", static_cast<double>(memory.alloc_retries)},
      {"memory/num_ooms", static_cast<double>(memory.ooms)},
      {"n_tokens_seen", static_cast<double>(results.tokens_seen)},
      {"lr", results.lr},
  };
  if (rates.mfu) scalars.push_back({"mfu(%)", *rates.mfu});
  if (const auto images = images_per_second(rates.tps)) scalars.push_back({"throughput(images/s)", *images});
  add_experts(results.experts, scalars);
  add_sources(results.tokens_by_source, scalars);
  return scalars;
}

void Metrics::log(const StepResults& results, const IntervalCounts& counts) {
  const Rates rates = this->rates(results, counts);
  log_info("{}", step_line({.step = results.step,
                            .loss = results.loss,
                            .grad_norm = results.grad_norm,
                            .memory_gib = counts.memory.max_reserved_gib,
                            .memory_percent = counts.memory.max_reserved_percent,
                            .tps = rates.tps,
                            .tflops = rates.tflops,
                            .mfu = rates.mfu},
                           colors_));
  if (!writers_.empty()) {
    const std::vector<Scalar> values = scalars(results, counts, rates);
    for (const auto& writer : writers_) writer->write(results.step, values);
  }
  write_records(results, counts, rates);
  log_sources(results);
  interval_.begin = results.finished;
  last_logged_ = results.step;
}

void Metrics::write_records(const StepResults& results, const IntervalCounts& counts, const Rates& rates) {
  const int64_t steps = std::max<int64_t>(1, results.step - std::max(last_logged_, options_.resumed_step));
  const MemoryPeak& memory = counts.memory;
  const JsonlRecord record{.step = results.step,
                           .loss = results.loss,
                           .max_loss = results.max_loss,
                           .grad_norm = results.grad_norm,
                           .lr = results.lr,
                           .tps = rates.tps,
                           .tflops = rates.tflops,
                           .mfu = rates.mfu,
                           .memory_gib = memory.max_reserved_gib,
                           .memory_active_gib = memory.of_process ? std::nullopt : std::optional(memory.max_active_gib),
                           .tokens = results.tokens_seen,
                           .time_s = results.finished - started_,
                           .step_s = rates.seconds / static_cast<double>(steps),
                           .data_wait_percent = rates.data_wait_percent,
                           .unix_s = unix_seconds(),
                           .images_per_s = images_per_second(rates.tps),
                           .experts = results.experts,
                           .tokens_by_source = results.tokens_by_source};
  if (jsonl_) jsonl_->write(record);
  if (rank_jsonl_) rank_jsonl_->write(record);
  if (options_.observer == nullptr) return;
  options_.observer->logged({.step = results.step,
                             .loss = results.loss,
                             .grad_norm = results.grad_norm,
                             .lr = results.lr,
                             .tps = rates.tps,
                             .mfu = rates.mfu,
                             .memory_gib = counts.memory.max_reserved_gib,
                             .data_wait_percent = rates.data_wait_percent,
                             .tokens = results.tokens_seen});
}

// Every tenth of the logged steps.
void Metrics::log_sources(const StepResults& results) const {
  if (results.tokens_by_source.empty() || results.step % (10 * options_.log_freq) != 0) return;
  int64_t total = 0;
  for (const SourceTokens& source : results.tokens_by_source) total += source.tokens;
  std::vector<std::string> shares;
  for (const SourceTokens& source : results.tokens_by_source)
    shares.push_back(
        fmt::format("{} {} ({:.2f}%)", source.name, with_thousands_separators(source.tokens),
                    100.0 * static_cast<double>(source.tokens) / static_cast<double>(std::max<int64_t>(total, 1))));
  log_info("Tokens by source: {}", fmt::join(shares, ", "));
}

void Metrics::begin_validation() {
  training_ = interval_;
  begin_interval();
}

void Metrics::log_validation(int64_t step, double loss, const std::string& set) {
  const double tps = tokens_per_second(interval_.counts.tokens, sources_.clock() - interval_.begin);
  const MemoryPeak memory = sources_.memory_peak();
  const std::string prefix = set.empty() ? "" : fmt::format("Set {}: ", set);
  log_info("{}{}", prefix,
           validation_line({.step = step,
                            .loss = loss,
                            .memory_gib = memory.max_reserved_gib,
                            .memory_percent = memory.max_reserved_percent,
                            .tps = tps},
                           colors_));
  if (!writers_.empty()) {
    const std::vector<Scalar> scalars = {
        {set.empty() ? "validation_metrics/loss" : fmt::format("validation_metrics/loss/{}", set), loss},
        {"validation_metrics/throughput(tps)", tps},
        {"validation_metrics/memory/max_active(GiB)", memory.max_active_gib},
        {"validation_metrics/memory/max_active(%)", memory.max_active_percent},
        {"validation_metrics/memory/max_reserved(GiB)", memory.max_reserved_gib},
        {"validation_metrics/memory/max_reserved(%)", memory.max_reserved_percent},
    };
    for (const auto& writer : writers_) writer->write(step, scalars);
  }
  if (jsonl_) jsonl_->write_validation(step, loss, set, unix_seconds());
  if (options_.observer != nullptr) options_.observer->validated(step, loss, tps, set);
  end_validation();
}

void Metrics::log_images(int64_t step, std::span<const observe::ShownImage> images) {
  if (!images.empty()) {
    for (const auto& writer : writers_) writer->write_images(step, images);
    if (options_.observer != nullptr) options_.observer->images_drawn(step, images);
  }
  end_validation();
}

void Metrics::end_validation() {
  const double validation_began = interval_.begin;
  begin_interval();
  training_.begin += interval_.begin - validation_began;
  interval_ = training_;
}

}  // namespace titanium::train
