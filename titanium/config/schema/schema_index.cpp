#include <algorithm>

#include "titanium/base/error.h"
#include "titanium/config/schema/schema.h"

namespace titanium::config {

const Option* Schema::find(std::string_view name) const {
  const auto match = by_name_.find(name);
  return match == by_name_.end() ? nullptr : match->second;
}

const Option& Schema::at(std::string_view name) const {
  const Option* option = find(name);
  TI_ASSERT(option, "no option {}", name);
  return *option;
}

bool Schema::is_section(std::string_view name) const {
  return std::ranges::any_of(sections_, [&](const SectionTitle& title) { return title.name == name; });
}

Option& Schema::add(Option option) {
  Option& added = options_.emplace_back(std::move(option));
  by_name_.emplace(added.name(), &added);
  return added;
}

void Schema::add_section(std::string name, std::string meaning) {
  sections_.push_back({std::move(name), std::move(meaning)});
}

}  // namespace titanium::config
