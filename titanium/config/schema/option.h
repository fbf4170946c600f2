// One option: its name, type, meaning and limits, and the member of JobConfig that holds it. Everything that the
// program does with options (reading TOML and the command line, --help, `config options`, docs/options.md, dumps) is
// derived from these declarations; schema.h has the list.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "titanium/config/job_config.h"
#include "titanium/config/reading/value.h"

namespace titanium::config {

enum class Type { kSwitch, kInteger, kNumber, kText, kList, kListOfLists, kTables };

// Built-in counterparts of torchtitan's configuration extensions. Their options count only when
// job.custom_config_module names the extension.
enum class Extension { kNone, kFlux, kFaultTolerance };

struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_included = true;
  bool high_included = true;
  std::optional<int64_t> also;  // one value outside the range that has a meaning of its own

  bool contains(double number) const;
  std::string text() const;  // "at least 1 or -1"; empty without limits
};

class Option {
 public:
  using Get = std::function<Value(const JobConfig&)>;
  using Set = std::function<void(JobConfig&, const Value&)>;

  // `set` may rely on the value being of `type`, or null where `nullable`.
  Option(std::string name, std::string meaning, Type type, bool nullable, Get get, Set set);

  // The declaration, chained.
  Option& at_least(double low);
  Option& above(double low);
  Option& at_most(double high);
  Option& between(double low, double high);  // both included
  Option& below(double high);
  Option& or_also(int64_t number);
  // Allowed texts; for a list, of each element.
  Option& one_of(std::vector<std::string> texts);
  Option& in_any_case();
  // `alias` is read as `text`, with a hint.
  Option& alias(std::string alias, std::string text);
  Option& own();
  Option& without_effect();  // has a meaning in Python only
  Option& of(Extension extension);

  const std::string& name() const { return name_; }
  std::string section() const;  // "training.dataloader" of "training.dataloader.num_workers"
  std::string key() const;
  const std::string& meaning() const { return meaning_; }
  Type type() const { return type_; }
  bool is_own() const { return own_; }
  bool is_without_effect() const { return without_effect_; }
  Extension extension() const { return extension_; }
  std::string type_text() const;  // "integer", "text or None"
  // What a value must be, limits included: "an integer, at least 1".
  std::string expectation() const;
  bool is_limited() const { return !texts_.empty() || !range_.text().empty(); }

  Value get(const JobConfig& config) const { return get_(config); }
  Value default_value() const { return get_(JobConfig{}); }
  bool is_default(const JobConfig& config) const { return get(config) == default_value(); }

  struct Outcome {
    std::optional<std::string> refusal;  // "must be an integer, at least 1."; the config is untouched then
    std::optional<std::string> hint;
  };
  // A value as it stands in a TOML file: integers pass for numbers, "None" for None, a comma-separated text for a list.
  Outcome assign(JobConfig& config, const Value& value) const;
  // The argument of a command-line option, as a value for `assign`.
  Value read_argument(std::string_view text) const;

 private:
  std::optional<Value> convert(const Value& value) const;
  bool settle_text(Value& text, Outcome& outcome) const;
  bool is_allowed(const Value& value) const;
  std::string refusal(const Value& value) const;

  std::string name_;
  std::string meaning_;
  Type type_;
  bool nullable_;
  Get get_;
  Set set_;
  Range range_;
  std::vector<std::string> texts_;
  bool any_case_ = false;
  std::optional<std::pair<std::string, std::string>> alias_;
  bool own_ = false;
  bool without_effect_ = false;
  Extension extension_ = Extension::kNone;
};

}  // namespace titanium::config
