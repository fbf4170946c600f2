#include "titanium/config/schema/metrics_schema.h"

namespace titanium::config {

void declare_metrics(Schema& schema) {
  Section<Metrics> metrics(schema, "metrics", "Log lines and metric files.", &JobConfig::metrics);
  metrics.option("log_freq", &Metrics::log_freq, "Steps between log lines.").at_least(1);
  metrics.option("enable_tensorboard", &Metrics::enable_tensorboard, "Write TensorBoard event files.");
  metrics.option("disable_color_printing", &Metrics::disable_color_printing, "Log lines without colours.");
  metrics.option("save_tb_folder", &Metrics::save_tb_folder, "Folder of the event files in job.dump_folder.");
  metrics.option("save_for_all_ranks", &Metrics::save_for_all_ranks,
                 "Every rank writes metric files, not only the first that has the loss.");
  metrics.option("enable_wandb", &Metrics::enable_wandb,
                 "Write an offline run for Weights & Biases; `wandb sync` uploads it.");
  metrics
      .option("enable_jsonl", &Metrics::enable_jsonl,
              "Write metrics.jsonl and run.jsonl in job.dump_folder: what was logged, and what happened.")
      .own();
  metrics
      .option(
          "port", &Metrics::port,
          "Port of /metrics (OpenMetrics, as Prometheus reads it) and /health on the rank that has the loss. 0: none.")
      .between(0, 65535)
      .own();
  metrics.option("address", &Metrics::address, "Address of this machine at which metrics.port listens.").own();
  metrics
      .option("stall_seconds", &Metrics::stall_seconds,
              "After so long without a finished step /health says that the run is stalled.")
      .at_least(1)
      .own();
}

void declare_log(Schema& schema) {
  Section<Log> log(schema, "log", "Lines on stdout.", &JobConfig::log);
  log.option("format", &Log::format, "Lines for people, or one JSON object with rank and step per line.")
      .one_of({"text", "json"})
      .own();
}

}  // namespace titanium::config
