#include "titanium/config/dump.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "titanium/config/availability.h"
#include "titanium/config/schema/extension.h"
#include "titanium/config/schema/schema.h"

namespace titanium::config {
namespace {

constexpr std::string_view kMarkdownHead =
    "# Options\n\n"
    "Written by `titanium config options --markdown`; a test keeps this page in step with the program.\n"
    "[configuration.md](configuration.md) explains how to set options. Those marked **own** are Titanium's, all "
    "others\n"
    "are torchtitan 0.2.2's.\n";

// A source is a path: whatever it contains must not end the comment.
std::string comment_text(std::string text) {
  std::ranges::replace_if(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text;
}

std::string toml_line(const Option& option, const LoadedConfig& loaded, bool with_sources) {
  const Value value = option.get(loaded.config);
  std::string line = fmt::format("{} = {}", option.key(), value.is_null() ? "\"None\"" : to_text(value));
  if (value.is_null() && option.default_value().is_null()) line = fmt::format("# {} = None", option.key());
  if (with_sources) line += "  # " + comment_text(loaded.source(option.name()));
  return line + "\n";
}

// What a reader should know beside the meaning.
std::vector<std::string> remarks(const Option& option) {
  std::vector<std::string> remarks;
  if (option.is_own()) remarks.emplace_back("Titanium's own");
  if (option.is_without_effect()) remarks.emplace_back("accepted without effect");
  if (option.extension() != Extension::kNone) {
    remarks.push_back(fmt::format("with job.custom_config_module = {}", extension_module(option.extension())));
  }
  if (const std::string note = availability_note(option.name()); !note.empty()) remarks.push_back(note);
  return remarks;
}

std::string help_entry(const Option& option) {
  const bool is_switch = option.type() == Type::kSwitch;
  std::string text = fmt::format("  --{}", option.name());
  text += is_switch ? fmt::format(", --{}.no_{}", option.section(), option.key())
                    : fmt::format(" <{}>", option.type_text());
  text += fmt::format("  (default: {})\n      {}", to_text(option.default_value()), option.meaning());
  if (option.is_limited()) text += fmt::format(" Must be {}.", option.expectation());
  if (const auto notes = remarks(option); !notes.empty()) text += fmt::format(" [{}]", fmt::join(notes, "; "));
  return text + "\n";
}

std::string markdown_cell(std::string_view text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|') cell += '\\';
    cell += c;
  }
  return cell;
}

std::string markdown_row(const Option& option) {
  std::vector<std::string> notes = remarks(option);
  if (option.is_own()) notes.front() = "**own**";
  const std::string meaning = option.meaning() + (notes.empty() ? "" : fmt::format(" ({})", fmt::join(notes, "; ")));
  return fmt::format("| `{}` | {} | `{}` | {} |\n", option.key(), markdown_cell(option.expectation()),
                     to_text(option.default_value()), markdown_cell(meaning));
}

// Calls `heading` once per section that has options of its own, then `entry` for each of those.
template <typename Heading, typename Entry>
void for_each_section(const Heading& heading, const Entry& entry) {
  std::string section;
  for (const Option& option : schema().options()) {
    if (option.section() != section) {
      section = option.section();
      const auto& titles = schema().sections();
      heading(*std::ranges::find_if(titles, [&](const auto& title) { return title.name == section; }));
    }
    entry(option);
  }
}

}  // namespace

std::string to_toml(const LoadedConfig& loaded, bool with_sources) {
  std::string text;
  std::string section;
  for (const Option& option : schema().options()) {
    if (!is_selected(option, loaded.config)) continue;
    if (option.section() != section) {
      section = option.section();
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    text += toml_line(option, loaded, with_sources);
  }
  return text;
}

std::string to_json(const LoadedConfig& loaded) {
  Value document = Value::object();
  for (const Option& option : schema().options()) {
    if (!is_selected(option, loaded.config)) continue;
    Value* place = &document;
    for (const std::string& part : split(option.name(), '.')) place = &(*place)[part];
    *place = option.get(loaded.config);
  }
  return document.dump(2, ' ', false, Value::error_handler_t::replace);
}

std::string options_help() {
  std::string text;
  for_each_section(
      [&](const Schema::SectionTitle& title) {
        text += fmt::format("{}[{}] {}\n", text.empty() ? "" : "\n", title.name, title.meaning);
      },
      [&](const Option& option) { text += help_entry(option); });
  return text;
}

std::string options_markdown() {
  std::string text(kMarkdownHead);
  for_each_section(
      [&](const Schema::SectionTitle& title) {
        text += fmt::format("\n## {}\n\n{}\n\n| option | value | default | meaning |\n|---|---|---|---|\n", title.name,
                            title.meaning);
      },
      [&](const Option& option) { text += markdown_row(option); });
  return text;
}

}  // namespace titanium::config
