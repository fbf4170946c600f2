#include "titanium/observe/run/run_folder.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <ranges>

#include "titanium/base/error.h"
#include "titanium/base/text/json.h"
#include "titanium/base/text/printable.h"

namespace titanium::observe {
namespace {

namespace fs = std::filesystem;
constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kMostColumns = 4096;
constexpr double kMostSteps = 1e15;  // beyond which a step is none
constexpr size_t kMostRanks = 256;   // more would hardly be told apart

template <typename Json>
double number_of(const Json& object, const char* key, double otherwise = 0) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->template get<double>() : otherwise;
}

std::string text_of(const nlohmann::ordered_json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<int> rank_of(const fs::path& file) {
  const std::string name = file.filename().string();
  constexpr std::string_view kBegin = "rank_", kEnd = ".jsonl";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return std::nullopt;
  int rank = 0;
  const char* end = name.data() + name.size() - kEnd.size();
  return std::from_chars(name.data() + kBegin.size(), end, rank).ptr == end ? std::optional(rank) : std::nullopt;
}

std::vector<RunImage> images_of(const nlohmann::ordered_json& event) {
  std::vector<RunImage> images;
  const auto found = event.find("images");
  if (found == event.end() || !found->is_array()) return images;
  for (const nlohmann::ordered_json& image : *found) {
    if (image.is_object()) images.push_back({text_of(image, "file"), text_of(image, "caption")});
  }
  return images;
}

// Reads the new lines of a file of records into `columns`; what is no record is counted.
bool read_columns(AppendedLines& lines, Columns& columns, int64_t& damaged) {
  const auto news = lines.read(
      [&](std::string_view line) {
        try {
          const nlohmann::json record = parse_json(line);
          const bool good = record.is_object() && record.contains("step") && record["step"].is_number();
          if (good && record.contains("validation_loss")) return;  // run.jsonl has it, too
          if (!good || !columns.add(record)) ++damaged;
        } catch (const JsonError&) {
          ++damaged;
        }
      },
      [&] {
        columns = {};
        damaged = 0;
      });
  return news != AppendedLines::News::kNone;
}

}  // namespace

void Columns::drop_after(double step) {
  const auto keep = static_cast<size_t>(std::ranges::upper_bound(steps, step) - steps.begin());
  steps.resize(keep);
  for (auto& [name, column] : values) column.resize(std::min(column.size(), keep));
}

void Columns::put(const std::string& name, const nlohmann::json& value) {
  if (!value.is_number()) return;
  const bool has_room = values.size() < kMostColumns && (values.size() + 1) * steps.size() <= most_numbers;
  if (!values.contains(name) && !has_room) return;
  std::vector<double>& column = values[name];
  column.resize(steps.size(), kNothing);
  column.back() = value.get<double>();
}

bool Columns::add(const nlohmann::json& record) {
  const double step = record["step"].get<double>();
  if (!(std::abs(step) <= kMostSteps)) return false;
  if (!steps.empty() && step <= steps.back()) drop_after(std::nextafter(step, -kMostSteps));
  if (values.size() * (steps.size() + 1) > most_numbers) return false;
  steps.push_back(step);
  for (const auto& [key, value] : record.items()) {
    if (value.is_number() && key != "step") put(key, value);
    if (value.is_object()) {
      for (const auto& [inner, number] : value.items()) put(fmt::format("{}/{}", key, inner), number);
    }
    if (key != "experts" || !value.is_array()) continue;
    for (const nlohmann::json& layer : value) {
      if (!layer.is_object()) continue;
      const std::string prefix = fmt::format("experts/layer_{}/", number_of(layer, "layer"));
      for (const auto& [inner, number] : layer.items()) {
        if (inner != "layer") put(prefix + inner, number);
      }
    }
  }
  for (auto& [name, column] : values) column.resize(steps.size(), kNothing);
  return true;
}

const std::vector<double>* Columns::find(const std::string& name) const {
  const auto found = values.find(name);
  return found == values.end() ? nullptr : &found->second;
}

std::optional<double> Columns::last(const std::string& name) const {
  const std::vector<double>* column = find(name);
  if (column == nullptr) return std::nullopt;
  for (const double value : std::views::reverse(*column)) {
    if (!std::isnan(value)) return value;
  }
  return std::nullopt;
}

RunFolder::RunFolder(const fs::path& path)
    : path_(path), metrics_(path / "metrics.jsonl"), events_(path / "run.jsonl") {
  if (!fs::exists(path / "metrics.jsonl") && !fs::exists(path / "run.jsonl")) {
    throw UsageError(
        fmt::format("{} has neither metrics.jsonl nor run.jsonl. Give the job.dump_folder of a run that was started "
                    "with metrics.enable_jsonl.",
                    printable(path.string())));
  }
  refresh();
}

std::string RunFolder::name() const {
  std::error_code failed;
  fs::path whole = fs::weakly_canonical(path_, failed);
  if (failed || whole.empty()) whole = path_;
  const std::string last = whole.filename().string();
  const bool says_little = last == "outputs" || last.empty();
  return says_little ? (whole.parent_path().filename() / last).string() : last;
}

bool RunFolder::refresh() {
  bool more = read_columns(metrics_, data_.columns, data_.damaged["metrics.jsonl"]);
  int64_t& damaged = data_.damaged["run.jsonl"];
  const auto news = events_.read(
      [&](std::string_view line) {
        try {
          const auto event = parse_ordered_json(line);
          event.is_object() && !text_of(event, "event").empty() ? take_event(event) : void(++damaged);
        } catch (const JsonError&) {
          ++damaged;
        }
      },
      [&] {
        RunData anew;
        std::swap(anew.columns, data_.columns);
        std::swap(anew.ranks, data_.ranks);
        std::swap(anew.damaged, data_.damaged);
        anew.damaged["run.jsonl"] = 0;
        data_ = std::move(anew);
      });
  more |= news != AppendedLines::News::kNone;
  find_ranks();
  return read_ranks() || more;
}

void RunFolder::find_ranks() {
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(path_ / "metrics_by_rank", failed)) {
    const auto rank = rank_of(entry.path());
    if (rank && rank_files_.size() < kMostRanks) rank_files_.try_emplace(*rank, entry.path());
  }
}

bool RunFolder::read_ranks() {
  bool more = false;
  for (auto& [rank, lines] : rank_files_) {
    more |= read_columns(lines, data_.ranks[rank], data_.damaged[fmt::format("metrics_by_rank/rank_{}.jsonl", rank)]);
  }
  return more;
}

void RunFolder::take_event(const nlohmann::ordered_json& event) {
  const std::string kind = text_of(event, "event");
  const double step = number_of(event, "step"), unix_s = number_of(event, "unix_s");
  if (kind == "start") take_start(event);
  if (kind == "validation") data_.validation[text_of(event, "set")][step] = number_of(event, "loss", kNothing);
  if (kind == "images") data_.images[step] = images_of(event);
  if (kind == "checkpoint") data_.checkpoints[step] = {{step, unix_s}, number_of(event, "seconds")};
  if (kind == "error") {
    const double rank = number_of(event, "rank");
    const bool is_rank = rank >= 0 && rank <= std::numeric_limits<int>::max();
    data_.error = {is_rank ? static_cast<int>(rank) : 0, unix_s, text_of(event, "message")};
  }
  if (kind == "end") data_.end = text_of(event, "how");
}

void RunFolder::take_start(const nlohmann::ordered_json& event) {
  const double step = number_of(event, "step"), unix_s = number_of(event, "unix_s");
  data_.first_start == 0 ? void(data_.first_start = unix_s) : data_.restarts.push_back({step, unix_s});
  for (auto& [set, losses] : data_.validation) losses.erase(losses.upper_bound(step), losses.end());
  data_.images.erase(data_.images.upper_bound(step), data_.images.end());
  data_.checkpoints.erase(data_.checkpoints.upper_bound(step), data_.checkpoints.end());
  data_.end.clear();
  data_.start = event;
}

}  // namespace titanium::observe
