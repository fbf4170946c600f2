#include "titanium/config/toml_document.h"

// toml++ asserts on some damaged files that it refuses properly when it goes on; a debug build must refuse them as
// well.
#define TOML_ASSERT(expression) static_cast<void>(0)
#include <toml++/toml.h>

#include <algorithm>
#include <regex>

#include "titanium/base/error.h"
#include "titanium/base/file.h"

namespace titanium::config {
namespace {

// Length of the UTF-8 sequence at the beginning of `text`; 0 when it is not one (overlong forms and surrogates
// included).
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto follows = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return follows(1) ? 2 : 0;
  if (first >= 0xe0 && first < 0xf0) {
    const bool overlong = first == 0xe0 && byte(1) < 0xa0;
    const bool surrogate = first == 0xed && byte(1) >= 0xa0;
    return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xf0 && first < 0xf5) {
    const bool overlong = first == 0xf0 && byte(1) < 0x90;
    const bool beyond = first == 0xf4 && byte(1) >= 0x90;
    return follows(1) && follows(2) && follows(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

void check_utf8(std::string_view content, const std::string& path) {
  for (size_t i = 0; i < content.size();) {
    const size_t length = utf8_length(content.substr(i));
    if (length == 0) {
      throw UsageError(fmt::format("{}:{}: not UTF-8 (byte 0x{:02x}). Save the file as UTF-8.", path,
                                   1 + std::count(content.begin(), content.begin() + static_cast<ptrdiff_t>(i), '\n'),
                                   static_cast<unsigned char>(content[i])));
    }
    i += length;
  }
}

// The TOML library follows dotted keys by recursion, without a limit of its own.
void check_depth(std::string_view content, const std::string& path) {
  constexpr ptrdiff_t kMostDots = 1000;
  const std::vector<std::string> lines = split(content, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    if (std::count(lines[i].begin(), lines[i].end(), '.') <= kMostDots) continue;
    throw UsageError(fmt::format("{}:{}: more than {} dots in a line. Break the line.", path, i + 1, kMostDots));
  }
}

Value to_value(const toml::node& node) {
  if (const auto value = node.value_exact<bool>()) return *value;
  if (const auto value = node.value_exact<int64_t>()) return *value;
  if (const auto value = node.value_exact<double>()) return *value;
  if (const auto value = node.value_exact<std::string>()) return *value;
  if (const toml::array* array = node.as_array()) {
    Value list = Value::array();
    for (const toml::node& item : *array) list.push_back(to_value(item));
    return list;
  }
  if (const toml::table* table = node.as_table()) {
    Value object = Value::object();
    for (const auto& [key, item] : *table) object[std::string(key.str())] = to_value(item);
    return object;
  }
  std::ostringstream text;
  node.visit([&](const auto& date) {
    if constexpr (!toml::is_container<decltype(date)>) text << date;
  });
  const std::string bytes = text.str();
  return Value::binary({bytes.begin(), bytes.end()});
}

TomlNode to_tree(const toml::node& node, std::string key = "") {
  TomlNode tree;
  tree.key = std::move(key);
  tree.line = node.source().begin.line;
  const toml::table* table = node.as_table();
  tree.is_table = table != nullptr;
  if (!table) {
    tree.value = to_value(node);
    return tree;
  }
  for (const auto& [key, child] : *table) tree.children.push_back(to_tree(child, std::string(key.str())));
  std::ranges::sort(tree.children, {}, [](const TomlNode& child) { return std::pair(child.line, child.key); });
  return tree;
}

std::string syntax_sentence(const toml::parse_error& error, const std::string& path) {
  const std::string description(error.description());
  const auto line = error.source().begin.line;
  static const std::regex kRedefinition(R"(cannot redefine existing ([\w-]+) '(.*)')");
  std::smatch match;
  if (std::regex_search(description, match, kRedefinition)) {
    return fmt::format("{}:{}: '{}' is given twice. Remove one of the two.", path, line, match.str(2));
  }
  return fmt::format("{}:{}: not valid TOML: {}.", path, line, description);
}

}  // namespace

TomlNode parse_toml(std::string_view content, const std::string& path) {
  check_utf8(content, path);
  check_depth(content, path);
  try {
    return to_tree(toml::parse(content, path));
  } catch (const toml::parse_error& error) {
    throw UsageError(syntax_sentence(error, path));
  }
}

TomlNode read_toml(const std::filesystem::path& path) {
  std::string content;
  try {
    content = read_file(path, "configuration file");
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  return parse_toml(content, path.string());
}

}  // namespace titanium::config
