#include "titanium/models/json_reader.h"

#include <fmt/format.h>

#include <cmath>

#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/base/text/json.h"
#include "titanium/base/text/printable.h"

namespace titanium::models {
namespace {

using Json = nlohmann::json;
constexpr auto kReplaceInvalid = Json::error_handler_t::replace;

}  // namespace

Json read_json_object(const std::filesystem::path& file, std::string_view expected) {
  const std::string text = read_file(file, "model description");
  try {
    Json json = parse_json(text);
    if (json.is_object()) return json;
  } catch (const JsonError& error) {
    throw UsageError(fmt::format("{} {}. Expected {}.", file.string(), error.what(), expected));
  }
  throw UsageError(fmt::format("{} is not a JSON object. Expected {}.", file.string(), expected));
}

bool JsonReader::has(std::string_view key) const { return object_.contains(key) && !object_[key].is_null(); }

int64_t JsonReader::size(std::string_view key, int64_t largest) const {
  const Json& value = required(key);
  if (!value.is_number_integer()) fail(key, "a whole number");
  if (value < 1 || value > largest) fail(key, fmt::format("between 1 and {}", largest));
  return value.get<int64_t>();
}

int64_t JsonReader::count_or(std::string_view key, int64_t fallback) const {
  return has(key) && object_[key].is_number_integer() && object_[key] == 0 ? 0 : size_or(key, fallback);
}

double JsonReader::number(std::string_view key) const {
  const Json& value = required(key);
  if (!value.is_number() || !std::isfinite(value.get<double>())) fail(key, "a number");
  return value.get<double>();
}

double JsonReader::positive(std::string_view key) const {
  const Json& value = required(key);
  if (!value.is_number() || !(value.get<double>() > 0)) fail(key, "a positive number");
  return value.get<double>();
}

bool JsonReader::flag(std::string_view key) const {
  const Json& value = required(key);
  if (!value.is_boolean()) fail(key, "true or false");
  return value.get<bool>();
}

std::string JsonReader::text_or(std::string_view key, const std::string& fallback) const {
  if (!has(key)) return fallback;
  if (!object_[key].is_string()) fail(key, "a string");
  return object_[key].get<std::string>();
}

JsonReader JsonReader::object(std::string_view key) const {
  const Json& value = required(key);
  if (!value.is_object()) fail(key, "an object");
  return {fmt::format("{}: {}", place_, key), value};
}

std::vector<int64_t> JsonReader::numbers(std::string_view key) const {
  const Json& value = required(key);
  if (!value.is_array()) fail(key, "an array of whole numbers");
  std::vector<int64_t> numbers;
  for (const Json& number : value) {
    if (!number.is_number_integer()) fail(key, "an array of whole numbers");
    numbers.push_back(number.get<int64_t>());
  }
  return numbers;
}

std::vector<std::string> JsonReader::texts(std::string_view key) const {
  const Json& value = required(key);
  if (!value.is_array()) fail(key, "an array of strings");
  std::vector<std::string> texts;
  for (const Json& text : value) {
    if (!text.is_string()) fail(key, "an array of strings");
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

void JsonReader::fail(std::string_view key, const std::string& expectation) const {
  // Containers are not written out: they may be large.
  const std::string value = !has(key)                      ? "missing"
                            : object_[key].is_structured() ? fmt::format("an {}", object_[key].type_name())
                                                           : object_[key].dump(-1, ' ', false, kReplaceInvalid);
  throw UsageError(fmt::format("{}: {} is {}, but should be {}.", place_, key, printable(value, 80), expectation));
}

const Json& JsonReader::required(std::string_view key) const {
  if (!has(key)) fail(key, "given");
  return object_[key];
}

}  // namespace titanium::models
