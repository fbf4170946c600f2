#include "titanium/config/reading/toml_document.h"

// toml++ asserts on some damaged files that it refuses properly when it goes on; a debug build must refuse them as
// well.
#define TOML_ASSERT(expression) static_cast<void>(0)
#define TOML_MAX_NESTED_VALUES 32  // arrays and inline tables inside each other
#include <toml++/toml.h>

#include <algorithm>

#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/base/text/printable.h"
#include "titanium/base/text/utf8.h"

namespace titanium::config {
namespace {

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

// The position after the text in quotes that begins at `at`; the end of the content where it does not end.
size_t skip_quoted(std::string_view content, size_t at) {
  const char quote = content[at];
  const std::string_view three = quote == '"' ? R"(""")" : "'''";
  const bool multi_line = content.substr(at).starts_with(three);
  const std::string_view end = multi_line ? three : three.substr(0, 1);
  for (at += end.size(); at < content.size(); ++at) {
    if (quote == '"' && content[at] == '\\') {
      ++at;
    } else if (content.substr(at).starts_with(end)) {
      return at + end.size();
    } else if (content[at] == '\n' && !multi_line) {
      return at;
    }
  }
  return content.size();
}

// The TOML library follows a key with dots by recursion, without a limit of its own. Dots in texts and comments do not
// count.
void check_depth(std::string_view content, const std::string& path) {
  constexpr int kMostDots = 16;
  int64_t line = 1;
  int dots = 0;  // in the key that is being read
  for (size_t at = 0; at < content.size();) {
    const char c = content[at];
    if (c == '"' || c == '\'') {
      const size_t end = skip_quoted(content, at);
      line +=
          std::count(content.begin() + static_cast<ptrdiff_t>(at), content.begin() + static_cast<ptrdiff_t>(end), '\n');
      at = end;
      continue;
    }
    if (c == '#') {
      at = std::min(content.find('\n', at), content.size());
      continue;
    }
    if (c == '\n') ++line;
    if (c == '.') ++dots;
    if (c == '\n' || c == '=' || c == ',' || c == '[' || c == '{') dots = 0;
    if (dots > kMostDots) {
      throw UsageError(
          fmt::format("{}:{}: a key has more than {} dots. Options have at most 4.", path, line, kMostDots));
    }
    ++at;
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
    // Keys of a table are unique, so none has to be searched for.
    auto& members = object.get_ref<Value::object_t&>();
    for (const auto& [key, item] : *table) members.push_back({std::string(key.str()), to_value(item)});
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
  const std::string_view description = error.description();
  const auto line = error.source().begin.line;
  if (const size_t found = description.find("cannot redefine existing "); found != std::string_view::npos) {
    const size_t begin = description.find('\'', found), end = description.rfind('\'');
    if (begin < end) {
      return fmt::format("{}:{}: '{}' is given twice. Remove one of the two.", path, line,
                         printable(description.substr(begin + 1, end - begin - 1)));
    }
  }
  return fmt::format("{}:{}: not valid TOML: {}.", path, line, printable(description, 512));
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
