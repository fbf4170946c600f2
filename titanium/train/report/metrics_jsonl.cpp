#include "titanium/train/report/metrics_jsonl.h"

#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "titanium/base/files/file.h"
#include "titanium/base/text/json.h"

namespace titanium::train {
namespace {

std::string number(std::optional<double> value) {
  return value && std::isfinite(*value) ? fmt::format("{:.9g}", *value) : "null";
}

std::string experts(const std::vector<ExpertBalance>& layers) {
  std::vector<std::string> objects;
  for (const ExpertBalance& layer : layers) {
    objects.push_back(fmt::format(R"({{"layer": {}, "max_over_mean": {}, "entropy": {}, "dead": {}}})", layer.layer,
                                  number(layer.max_over_mean), number(layer.entropy), layer.dead));
  }
  return objects.empty() ? "" : fmt::format(R"(, "experts": [{}])", fmt::join(objects, ", "));
}

std::string sources(const std::vector<SourceTokens>& sources) {
  std::vector<std::string> members;
  for (const SourceTokens& source : sources)
    members.push_back(fmt::format("{}: {}", nlohmann::json(source.name).dump(), source.tokens));
  return members.empty() ? "" : fmt::format(R"(, "tokens_by_source": {{{}}})", fmt::join(members, ", "));
}

std::string images(std::optional<double> per_second) {
  return per_second ? fmt::format(R"(, "images_per_s": {})", number(per_second)) : "";
}

// Whether a line is a record of that step or an earlier one. A line cut short by a crash is not JSON.
bool is_up_to(const std::string& line, int64_t step) {
  try {
    const auto object = parse_json(line);
    return object.is_object() && object.contains("step") && object["step"].is_number() && object["step"] <= step;
  } catch (const JsonError&) {
    return false;
  }
}

std::string lines_up_to(const std::filesystem::path& path, int64_t step) {
  if (step == 0 || !std::filesystem::exists(path)) return "";
  std::istringstream lines(read_file(path, "metrics file"));
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    if (is_up_to(line, step)) kept += line + "\n";
  }
  return kept;
}

}  // namespace

MetricsJsonl::MetricsJsonl(const std::filesystem::path& path, int64_t resumed_step) {
  write_file_atomically(path, lines_up_to(path, resumed_step));
  file_ = std::make_unique<GrowingFile>(path, "Check job.dump_folder and its permissions.");
}

void MetricsJsonl::write(const JsonlRecord& record) {
  file_->append(
      fmt::format(R"({{"step": {}, "loss": {}, "max_loss": {}, "grad_norm": {}, "lr": {}, "tps": {}, "tflops": {}, )"
                  R"("mfu": {}, "memory_gib": {}, "memory_active_gib": {}, "tokens": {}, "time_s": {}, )"
                  R"("step_s": {}, "data_wait_percent": {}, "unix_s": {:.3f}{}{}{}}})"
                  "\n",
                  record.step, number(record.loss), number(record.max_loss), number(record.grad_norm),
                  number(record.lr), number(record.tps), number(record.tflops), number(record.mfu),
                  number(record.memory_gib), number(record.memory_active_gib), record.tokens, number(record.time_s),
                  number(record.step_s), number(record.data_wait_percent), record.unix_s, images(record.images_per_s),
                  experts(record.experts), sources(record.tokens_by_source)));
}

void MetricsJsonl::write_validation(int64_t step, double loss, const std::string& set, double unix_s) {
  const std::string name = set.empty() ? "" : fmt::format(R"(, "set": {})", nlohmann::json(set).dump());
  file_->append(fmt::format(R"({{"step": {}, "validation_loss": {}{}, "unix_s": {:.3f}}})"
                            "\n",
                            step, number(loss), name, unix_s));
}

}  // namespace titanium::train
