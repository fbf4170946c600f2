#include "titanium/config/schema/option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "titanium/base/error.h"
#include "titanium/base/text/json.h"
#include "titanium/base/text/nearest_name.h"

namespace titanium::config {
namespace {

constexpr int kArgumentDepth = 8;  // of lists inside each other; no option takes more than two

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool is_list_of_texts(const Value& value) {
  return value.is_array() && std::ranges::all_of(value, [](const Value& item) { return item.is_string(); });
}

// Bytes that are not UTF-8 and dates have no JSON text.
bool has_json_text(const Value& value) {
  if (value.is_binary()) return false;
  if (!value.is_structured()) return !value.is_number_float() || std::isfinite(value.get<double>());
  return std::ranges::all_of(value, has_json_text);
}

bool is_list_of_tables(const Value& value) {
  return value.is_array() &&
         std::ranges::all_of(value, [](const Value& item) { return item.is_object() && has_json_text(item); });
}

std::vector<std::string> quoted_all(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  quoted.reserve(texts.size());
  for (const std::string& text : texts) quoted.push_back(to_text(text));
  return quoted;
}

}  // namespace

bool Range::contains(double number) const {
  if (also && number == static_cast<double>(*also)) return true;
  return (low_included ? number >= low : number > low) && (high_included ? number <= high : number < high);
}

std::string Range::text() const {
  std::vector<std::string> limits;
  if (std::isfinite(low)) limits.push_back(fmt::format("{} {}", low_included ? "at least" : "above", low));
  if (std::isfinite(high)) limits.push_back(fmt::format("{} {}", high_included ? "at most" : "below", high));
  std::string text = fmt::format("{}", fmt::join(limits, " and "));
  if (also) text += fmt::format(", or {}", *also);
  return text;
}

Option::Option(std::string name, std::string meaning, Type type, bool nullable, Get get, Set set)
    : name_(std::move(name)),
      meaning_(std::move(meaning)),
      type_(type),
      nullable_(nullable),
      get_(std::move(get)),
      set_(std::move(set)) {}

Option& Option::at_least(double low) {
  range_.low = low;
  return *this;
}

Option& Option::above(double low) {
  range_.low = low;
  range_.low_included = false;
  return *this;
}

Option& Option::at_most(double high) {
  range_.high = high;
  return *this;
}

Option& Option::between(double low, double high) { return at_least(low).at_most(high); }

Option& Option::below(double high) {
  range_.high = high;
  range_.high_included = false;
  return *this;
}

Option& Option::or_also(int64_t number) {
  range_.also = number;
  return *this;
}

Option& Option::one_of(std::vector<std::string> texts) {
  texts_ = std::move(texts);
  return *this;
}

Option& Option::in_any_case() {
  any_case_ = true;
  return *this;
}

Option& Option::alias(std::string alias, std::string text) {
  alias_.emplace(std::move(alias), std::move(text));
  return *this;
}

Option& Option::own() {
  own_ = true;
  return *this;
}

Option& Option::without_effect() {
  without_effect_ = true;
  return *this;
}

Option& Option::of(Extension extension) {
  extension_ = extension;
  return *this;
}

std::string Option::section() const { return name_.substr(0, name_.rfind('.')); }

std::string Option::key() const { return name_.substr(name_.rfind('.') + 1); }

std::string Option::type_text() const {
  static constexpr std::array kNames = {"switch", "integer",       "number",        "text",
                                        "list",   "list of lists", "list of tables"};
  return std::string(kNames.at(static_cast<size_t>(type_))) + (nullable_ ? " or None" : "");
}

std::string Option::expectation() const {
  static constexpr std::array kNames = {"true or false",   "an integer",      "a number",
                                        "a text",          "a list of texts", "a list of lists of texts",
                                        "a list of tables"};
  std::string text = kNames.at(static_cast<size_t>(type_));
  if (!texts_.empty()) {
    text = one_of_text(quoted_all(texts_));
    if (type_ == Type::kList) text = "a list of " + text;
  }
  if (const std::string limits = range_.text(); !limits.empty()) text += ", " + limits;
  return nullable_ ? text + ", or None" : text;
}

std::string Option::refusal(const Value& value) const {
  std::string text = fmt::format("must be {}.", expectation());
  if (value.is_string()) {
    if (const auto nearest = nearest_name(value.get<std::string>(), texts_)) {
      text += fmt::format(" Did you mean {}?", to_text(*nearest));
    }
  }
  return text;
}

// The value in the option's own type, or nothing where the types do not go together.
std::optional<Value> Option::convert(const Value& value) const {
  if (nullable_ && (value.is_null() || value == "None")) return Value();
  switch (type_) {
    case Type::kSwitch:
      if (value.is_boolean()) return value;
      break;
    case Type::kInteger:
      if (value.is_number_integer()) return value;
      break;
    case Type::kNumber:
      if (value.is_number() && std::isfinite(value.get<double>())) return Value(value.get<double>());
      break;
    case Type::kText:
      if (value.is_string()) return value;
      break;
    case Type::kList:
      if (value.is_string()) return Value(split(value.get<std::string>(), ','));
      if (is_list_of_texts(value)) return value;
      break;
    case Type::kListOfLists:
      if (value.is_array() && std::ranges::all_of(value, is_list_of_texts)) return value;
      break;
    case Type::kTables:
      if (is_list_of_tables(value)) return value;
      break;
  }
  return std::nullopt;
}

// Replaces other spellings of an allowed text by the text itself; false when it is none of them.
bool Option::settle_text(Value& text, Outcome& outcome) const {
  if (texts_.empty()) return true;
  if (alias_ && text == alias_->first) {
    outcome.hint = fmt::format("{}: {} is read as {}.", name_, to_text(text), to_text(alias_->second));
    text = alias_->second;
  }
  const std::string given = text.get<std::string>();
  const auto match = std::ranges::find_if(texts_, [&](const std::string& allowed) {
    return allowed == given || (any_case_ && lower_case(allowed) == lower_case(given));
  });
  if (match == texts_.end()) return false;
  text = *match;
  return true;
}

bool Option::is_allowed(const Value& value) const { return !value.is_number() || range_.contains(value.get<double>()); }

Option::Outcome Option::assign(JobConfig& config, const Value& value) const {
  Outcome outcome;
  std::optional<Value> converted = convert(value);
  if (!converted || !is_allowed(*converted)) return {refusal(value), std::nullopt};
  if (converted->is_string() && !settle_text(*converted, outcome)) return {refusal(value), std::nullopt};
  if (type_ == Type::kList) {
    for (Value& item : *converted) {
      if (!settle_text(item, outcome)) return {refusal(item), std::nullopt};
    }
  }
  set_(config, *converted);
  return outcome;
}

Value Option::read_argument(std::string_view text) const {
  if (type_ == Type::kInteger) {
    if (const auto integer = parse_number<int64_t>(text)) return *integer;
  }
  if (type_ == Type::kInteger || type_ == Type::kNumber) {
    if (const auto number = parse_number<double>(text)) return *number;
  }
  if (type_ == Type::kListOfLists || type_ == Type::kTables) {
    try {
      return parse_ordered_json(text, {.depth = kArgumentDepth});
    } catch (const JsonError&) {  // refused as a text, with what is expected
    }
  }
  return std::string(text);
}

}  // namespace titanium::config
