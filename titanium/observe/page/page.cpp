#include "titanium/observe/page/page.h"

#include <chrono>
#include <cmath>

#include "titanium/base/error.h"
#include "titanium/observe/page/page_assets.h"
#include "titanium/observe/page/page_images.h"
#include "titanium/observe/page/thin.h"
#include "titanium/observe/run/run_summary.h"
#include "titanium/schedule/csv.h"
#include "titanium/schedule/render.h"
#include "titanium/schedule/timeline.h"

namespace titanium::observe {
namespace {

using Json = nlohmann::ordered_json;
constexpr size_t kMostPipelineActions = 20'000;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }
Json number(const std::optional<double>& value) { return value ? number(*value) : Json(); }

// Six digits are more than a screen shows, and a third of the bytes.
Json short_number(double value) {
  if (!std::isfinite(value)) return {};
  const double digits = value == 0 ? 0 : 5 - std::floor(std::log10(std::abs(value)));
  const double scale = std::pow(10.0, digits);
  const bool safe = std::isfinite(scale) && scale > 0 && std::isfinite(value * scale);
  return safe && digits > 0 ? std::round(value * scale) / scale : value;
}

struct Range {
  size_t begin = 0, end = 0;
};

// One point beyond each end, so that lines leave the picture.
Range visible(const std::vector<double>& steps, const PageOptions& options) {
  auto begin = std::ranges::lower_bound(steps, options.from), end = std::ranges::upper_bound(steps, options.to);
  if (begin != steps.begin()) --begin;
  if (end != steps.end()) ++end;
  return {static_cast<size_t>(begin - steps.begin()), static_cast<size_t>(std::max(begin, end) - steps.begin())};
}

Json curve(const std::vector<double>& steps, const std::vector<double>& values, const PageOptions& options) {
  const auto [begin, end] = visible(steps, options);
  const std::span<const double> part = std::span(values).subspan(begin, end - begin);
  Json x = Json::array(), y = Json::array();
  for (const size_t i : thin(part, options.points)) {
    x.push_back(static_cast<int64_t>(steps[begin + i]));
    y.push_back(short_number(part[i]));
  }
  return {{"x", std::move(x)}, {"y", std::move(y)}};
}

// Times and counts are for the axis, and need all their digits.
Json exact_curve(const std::vector<double>& steps, const std::vector<double>& values, const PageOptions& options) {
  const auto [begin, end] = visible(steps, options);
  const std::span<const double> part = std::span(values).subspan(begin, end - begin);
  Json x = Json::array(), y = Json::array();
  for (const size_t i : thin(part, options.points)) {
    x.push_back(static_cast<int64_t>(steps[begin + i]));
    y.push_back(number(part[i]));
  }
  return {{"x", std::move(x)}, {"y", std::move(y)}};
}

Json series_of(const Columns& columns, const PageOptions& options) {
  Json series = Json::object();
  for (const auto& [name, values] : columns.values) {
    const bool exact = name == "tokens" || name == "unix_s" || name == "time_s";
    series[name] = (exact ? exact_curve : curve)(columns.steps, values, options);
  }
  return series;
}

Json summary_of(const RunSummary& summary) {
  Json validation = Json::array();
  for (const auto& [set, loss] : summary.validation) validation.push_back({{"set", set}, {"loss", number(loss)}});
  return {{"state", to_string(summary.state)},
          {"step", summary.step},
          {"total_steps", summary.total_steps},
          {"last_logged", summary.last_logged},
          {"tokens", number(summary.tokens)},
          {"loss", number(summary.loss)},
          {"validation", std::move(validation)},
          {"tps", number(summary.tps)},
          {"mfu", number(summary.mfu)},
          {"memory_gib", number(summary.memory_gib)},
          {"step_seconds", number(summary.step_seconds)},
          {"seconds_left", number(summary.seconds_left)},
          {"elapsed", number(summary.elapsed)},
          {"goodput", number(summary.goodput)},
          {"restarts", summary.restarts}};
}

// The picture, or nothing for a table that is damaged or too large to look at.
Json pipeline_of(const Json& start) {
  const auto pipeline = start.find("pipeline");
  if (pipeline == start.end() || !pipeline->is_object()) return {};
  try {
    const schedule::Table table = schedule::parse_csv(pipeline->value("csv", ""), "run.jsonl");
    size_t actions = 0;
    for (const auto& rank : table.ranks) actions += rank.size();
    if (actions > kMostPipelineActions) return {};
    const schedule::Timeline timeline = schedule::simulate(table);
    const std::string title = fmt::format("{}: {} ranks, {} stages, {} micro-batches; bubble {:.1f} % on ideal ranks",
                                          pipeline->value("schedule", ""), table.ranks.size(), table.stages(),
                                          table.micro_batches, 100 * timeline.bubble);
    return {{"title", title}, {"svg", schedule::to_svg(table, timeline, pipeline->value("schedule", ""))}};
  } catch (const Error&) {
    return {};
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

Json notes_of(const RunData& run) {
  Json notes = Json::array();
  for (const auto& [file, lines] : run.damaged) {
    if (lines > 0)
      notes.push_back(fmt::format("{} damaged line{} of {} left out.", lines, lines == 1 ? "" : "s", file));
  }
  if (run.start.empty()) notes.push_back("There is no run.jsonl: status, configuration and restarts are not known.");
  return notes;
}

Json member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? Json() : *found;
}

// The curve of each set.
Json validation_of(const RunData& run) {
  Json sets = Json::array();
  for (const auto& [set, losses] : run.validation) {
    Json x = Json::array(), y = Json::array();
    for (const auto& [step, loss] : losses) {
      x.push_back(step);
      y.push_back(number(loss));
    }
    sets.push_back({{"set", set}, {"x", std::move(x)}, {"y", std::move(y)}});
  }
  return sets;
}

Json describe(const RunFolder& folder, const PageOptions& options, double now, PageImages& images) {
  const RunData& run = folder.data();
  const Json start = run.start.is_object() ? run.start : Json::object();
  Json json = {{"name", folder.name()},
               {"folder", folder.path().string()},
               {"model", member(start, "model")},
               {"description", member(start, "description")},
               {"summary", summary_of(summarize(run, now))},
               {"series", series_of(run.columns, options)},
               {"planned_memory_gib", member(start, "planned_memory_gib")},
               {"pipeline", pipeline_of(start)},
               {"changed", member(start, "changed")},
               {"config", member(start, "config")},
               {"environment", member(start, "environment")},
               {"notes", notes_of(run)}};
  json["validation"] = validation_of(run);
  json["images"] = images.of_run(folder);
  for (const std::string& note : images.notes()) json["notes"].push_back(note);
  json["checkpoints"] = json["restarts"] = Json::array();
  for (const auto& [step, saved] : run.checkpoints) {
    json["checkpoints"].push_back({{"step", step}, {"unix_s", saved.unix_s}, {"seconds", saved.seconds}});
  }
  for (const RunEvent& restart : run.restarts) {
    json["restarts"].push_back({{"step", restart.step}, {"unix_s", restart.unix_s}});
  }
  json["ranks"] = Json::object();
  for (const auto& [rank, columns] : run.ranks) {
    if (const auto* seconds = columns.find("step_s")) {
      json["ranks"][std::to_string(rank)] = curve(columns.steps, *seconds, options);
    }
  }
  if (run.error) {
    json["error"] = {{"rank", run.error->rank}, {"unix_s", run.error->unix_s}, {"message", run.error->message}};
  }
  return json;
}

std::string as_script(const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (const char character : text) {
    // Only strings hold it, so the escape means the same, and no "</script" is left.
    character == '<' ? void(safe += "\\u003c") : void(safe += character);
  }
  return safe;
}

void replace(std::string& text, std::string_view what, std::string_view with) {
  const size_t at = text.find(what);
  TI_ASSERT(at != std::string::npos, "the page has no {}", what);
  text.replace(at, what.size(), with);
}

}  // namespace

std::string page_data(const std::vector<std::unique_ptr<RunFolder>>& runs, const PageOptions& options) {
  const auto clock = std::chrono::system_clock::now().time_since_epoch();
  const double now = options.now.value_or(std::chrono::duration<double>(clock).count());
  Json json = {{"generated", now}, {"runs", Json::array()}};
  PageImages images(options.image_bytes);
  for (const auto& run : runs) json["runs"].push_back(describe(*run, options, now, images));
  return as_script(json);
}

std::string image_data(const std::vector<std::unique_ptr<RunFolder>>& runs, const PageOptions& options) {
  PageImages images(options.image_bytes);
  Json json = Json::array();
  for (const auto& run : runs) json.push_back(images.of_run(*run));
  return as_script(json);
}

std::string make_page(const std::string& data) {
  std::string page(page_html());
  replace(page, "/*STYLE*/", page_style());
  replace(page, "/*SCRIPT*/", std::string(plot_script()) + std::string(page_script()));
  replace(page, "/*DATA*/", data.empty() ? "null" : data);
  return page;
}

}  // namespace titanium::observe
