#include "titanium/config/data_sources.h"

#include <algorithm>
#include <cmath>

#include "titanium/base/error.h"
#include "titanium/base/text/nearest_name.h"
#include "titanium/config/reading/value.h"

namespace titanium::config {
namespace {

const std::vector<std::string> kTrainingKeys = {"name",       "path",   "dataset",       "weight", "weight_schedule",
                                                "text_field", "epochs", "when_exhausted"};
const std::vector<std::string> kValidationKeys = {"name", "path", "dataset", "text_field"};
const std::vector<std::string> kEnds = {"repeat", "drop", "stop"};

// Reads one table; messages name the option, the source and the key.
class Reader {
 public:
  Reader(std::string_view option, size_t number) : place_(fmt::format("{}[{}]", option, number)) {}

  DataSource read(const Table& table, const std::vector<std::string>& keys) {
    for (const auto& [key, text] : table) {
      if (std::ranges::find(keys, key) == keys.end()) {
        const auto nearest = nearest_name(key, keys);
        refuse(fmt::format(
            "has no key {}. {}", to_short_text(key),
            nearest ? fmt::format("Did you mean {}?", *nearest) : fmt::format("There are {}.", fmt::join(keys, ", "))));
      }
      set(key, Value::parse(text));
    }
    if (!source_.path && !source_.dataset) refuse("names no data. Give it a path or a dataset.");
    if (source_.name.empty()) refuse("has no name. Give it one: positions and metrics are kept under it.");
    if (source_.weight && !source_.weight_schedule.empty())
      refuse("has both weight and weight_schedule. Remove one of the two.");
    if (source_.epochs && source_.when_exhausted == "repeat")
      refuse("has epochs and begins again without end. Set when_exhausted to \"drop\" or \"stop\".");
    return std::move(source_);
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    throw UsageError(fmt::format("{} {}", place_, problem));
  }

  [[noreturn]] void refuse(const std::string& key, const Value& value, std::string_view expectation) const {
    throw UsageError(fmt::format("{}.{} = {} must be {}.", place_, key, to_short_text(value), expectation));
  }

  void set(const std::string& key, const Value& value) {
    if (key == "name") source_.name = text(key, value);
    if (key == "path") source_.path = text(key, value);
    if (key == "dataset") source_.dataset = text(key, value);
    if (key == "text_field") source_.text_field = text(key, value);
    if (key == "weight") source_.weight = weight(key, value);
    if (key == "weight_schedule") source_.weight_schedule = schedule(key, value);
    if (key == "epochs") source_.epochs = count(key, value);
    if (key == "when_exhausted") {
      source_.when_exhausted = text(key, value);
      if (std::ranges::find(kEnds, source_.when_exhausted) == kEnds.end())
        refuse(key, value, "\"repeat\", \"drop\" or \"stop\"");
    }
  }

  std::string text(const std::string& key, const Value& value) const {
    if (!value.is_string() || value.get<std::string>().empty()) refuse(key, value, "a text that is not empty");
    return value.get<std::string>();
  }

  double weight(const std::string& key, const Value& value) const {
    if (!value.is_number() || !(value.get<double>() >= 0) || !std::isfinite(value.get<double>()))
      refuse(key, value, "a number, at least 0");
    return value.get<double>();
  }

  int64_t count(const std::string& key, const Value& value) const {
    constexpr int64_t kMostEpochs = 1'000'000;
    if (!value.is_number_integer() || value < 1 || value > kMostEpochs)
      refuse(key, value, fmt::format("an integer from 1 to {}", kMostEpochs));
    return value.get<int64_t>();
  }

  std::vector<ScheduledWeight> schedule(const std::string& key, const Value& value) const {
    constexpr const char* kExpectation = "a list of [step, weight] with ascending steps, the first one 0";
    std::vector<ScheduledWeight> weights;
    if (!value.is_array() || value.empty()) refuse(key, value, kExpectation);
    for (const Value& pair : value) {
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_integer()) refuse(key, value, kExpectation);
      weights.push_back({.step = pair[0].get<int64_t>(), .weight = weight(key, pair[1])});
      const bool ascends = weights.size() == 1 ? weights[0].step == 0 : weights.end()[-2].step < weights.back().step;
      if (!ascends) refuse(key, value, kExpectation);
    }
    return weights;
  }

  std::string place_;
  DataSource source_;
};

}  // namespace

std::vector<DataSource> data_sources(const std::vector<Table>& tables, std::string_view option) {
  const std::vector<std::string>& keys = option.starts_with("validation") ? kValidationKeys : kTrainingKeys;
  std::vector<DataSource> sources;
  for (const Table& table : tables) {
    DataSource source = Reader(option, sources.size()).read(table, keys);
    if (std::ranges::any_of(sources, [&](const DataSource& other) { return other.name == source.name; }))
      throw UsageError(
          fmt::format("{} has two sources of the name {}. Give each its own.", option, to_short_text(source.name)));
    sources.push_back(std::move(source));
  }
  return sources;
}

}  // namespace titanium::config
