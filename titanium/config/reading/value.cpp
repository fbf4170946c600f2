#include "titanium/config/reading/value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

namespace titanium::config {
namespace {

constexpr size_t kShortLength = 200;

std::string float_text(double number) {
  std::string text = fmt::format("{}", number);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

// JSON's escapes are TOML's, but for DEL, which TOML wants escaped too.
std::string quoted(const Value& text) {
  std::string escaped;
  for (const char c : text.dump(-1, ' ', false, Value::error_handler_t::replace)) {
    if (c == '\x7f')
      escaped += "\\u007F";
    else
      escaped += c;
  }
  return escaped;
}

// As an inline table.
std::string table_text(const Value& table) {
  std::vector<std::string> items;
  for (const auto& [key, item] : table.items()) {
    const bool bare = !key.empty() && std::ranges::all_of(key, [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '-';
    });
    items.push_back(fmt::format("{} = {}", bare ? key : quoted(Value(key)), to_text(item)));
  }
  return items.empty() ? "{}" : fmt::format("{{ {} }}", fmt::join(items, ", "));
}

}  // namespace

std::string to_text(const Value& value) {
  if (value.is_null()) return "None";
  if (value.is_number_float()) return float_text(value.get<double>());
  if (value.is_string()) return quoted(value);
  if (value.is_binary()) return {value.get_binary().begin(), value.get_binary().end()};
  if (value.is_object()) return table_text(value);
  if (!value.is_array()) return value.dump(-1, ' ', false, Value::error_handler_t::replace);
  std::vector<std::string> items;
  for (const Value& item : value) items.push_back(to_text(item));
  return fmt::format("[{}]", fmt::join(items, ", "));
}

std::string to_short_text(const Value& value) {
  std::string text = to_text(value);
  if (text.size() <= kShortLength) return text;
  size_t end = kShortLength;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // not inside a UTF-8 sequence
  return text.substr(0, end) + "...";
}

std::vector<std::vector<std::pair<std::string, std::string>>> to_tables(const Value& value) {
  std::vector<std::vector<std::pair<std::string, std::string>>> tables;
  for (const Value& object : value) {
    auto& table = tables.emplace_back();
    for (const auto& [key, item] : object.items()) table.emplace_back(key, item.dump());
  }
  return tables;
}

Value from_tables(const std::vector<std::vector<std::pair<std::string, std::string>>>& tables) {
  Value value = Value::array();
  for (const auto& table : tables) {
    Value object = Value::object();
    for (const auto& [key, text] : table) object[key] = Value::parse(text);
    value.push_back(std::move(object));
  }
  return value;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    parts.emplace_back(text.substr(0, end));
    if (end == text.size()) break;
    text.remove_prefix(end + 1);
    if (text.empty()) parts.emplace_back();
  }
  return parts;
}

std::string one_of_text(const std::vector<std::string>& items) {
  if (items.size() < 2) return fmt::format("{}", fmt::join(items, ""));
  return fmt::format("{} or {}", fmt::join(items.begin(), items.end() - 1, ", "), items.back());
}

}  // namespace titanium::config
