#include "titanium/config/reading/command_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "titanium/base/text/nearest_name.h"
#include "titanium/base/text/printable.h"
#include "titanium/config/schema/schema.h"

namespace titanium::config {
namespace {

bool is_option(std::string_view arg) { return arg.starts_with("--"); }

// "training.no_test_mode" of "training.test_mode".
std::string off_name(const Option& option) { return fmt::format("{}.no_{}", option.section(), option.key()); }

std::string switch_sentence(const Option& option) {
  return fmt::format("{} is a switch: write --{} or --{}", option.name(), option.name(), off_name(option));
}

class Parser {
 public:
  explicit Parser(std::span<const std::string> args) : args_(args) {}

  CommandLine parse() {
    while (next_ < args_.size()) {
      const std::string& arg = args_[next_++];
      if (is_option(arg))
        read_option(arg);
      else
        refuse(fmt::format("unexpected argument {}. Options are written --section.key value.", to_short_text(arg)));
    }
    return std::move(result_);
  }

 private:
  void read_option(std::string_view arg) {
    const size_t equals = arg.find('=');
    std::string name(arg.substr(2, equals == std::string_view::npos ? equals : equals - 2));
    std::ranges::replace(name, '-', '_');
    std::optional<std::string> value;
    if (equals != std::string_view::npos) value = arg.substr(equals + 1);

    if (const Option* option = schema().find(name)) {
      if (option->type() == Type::kSwitch)
        read_switch(*option, true, value);
      else
        read_value(*option, value);
    } else if (const Option* switched_off = find_switched_off(name)) {
      read_switch(*switched_off, false, value);
    } else {
      if (!value) take_value();  // it belongs to the unknown option
      refuse_unknown(name);
    }
  }

  const Option* find_switched_off(const std::string& name) const {
    const size_t key = name.rfind('.') + 1;
    if (name.compare(key, 3, "no_") != 0) return nullptr;
    const Option* option = schema().find(name.substr(0, key) + name.substr(key + 3));
    return option && option->type() == Type::kSwitch ? option : nullptr;
  }

  void read_switch(const Option& option, bool on, const std::optional<std::string>& value) {
    if (value) {
      refuse(fmt::format("{}, without ={}.", switch_sentence(option), printable(*value)));
    } else if (const auto stray = take_value()) {
      refuse(fmt::format("{}, without {} after it.", switch_sentence(option), to_short_text(*stray)));
    } else {
      result_.arguments.push_back({&option, on});
    }
  }

  void read_value(const Option& option, std::optional<std::string> value) {
    if (!value) value = take_value();
    if (value)
      result_.arguments.push_back({&option, option.read_argument(*value)});
    else
      refuse(fmt::format("--{} needs a value: {}.", option.name(), option.expectation()));
  }

  std::optional<std::string> take_value() {
    if (next_ == args_.size() || is_option(args_[next_])) return std::nullopt;
    return args_[next_++];
  }

  void refuse_unknown(const std::string& name) {
    std::vector<std::string> names;
    for (const Option& option : schema().options()) {
      names.push_back(option.name());
      if (option.type() == Type::kSwitch) names.push_back(off_name(option));
    }
    const auto nearest = nearest_name(name, names);
    refuse(fmt::format(
        "there is no option --{}. {}", printable(name),
        nearest ? fmt::format("Did you mean --{}?", *nearest) : "`titanium config options` lists all options."));
  }

  void refuse(const std::string& sentence) { result_.problems.push_back("command line: " + sentence); }

  std::span<const std::string> args_;
  size_t next_ = 0;
  CommandLine result_;
};

}  // namespace

CommandLine parse_command_line(std::span<const std::string> args) { return Parser(args).parse(); }

}  // namespace titanium::config
