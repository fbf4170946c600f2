// All options, in the order of the documentation.
#pragma once

#include <deque>
#include <map>
#include <string_view>

#include "titanium/config/schema/option.h"

namespace titanium::config {

class Schema {
 public:
  struct SectionTitle {
    std::string name;
    std::string meaning;
  };

  const std::deque<Option>& options() const { return options_; }
  // Sections and their nested sections. The options of each follow one another.
  const std::vector<SectionTitle>& sections() const { return sections_; }

  const Option* find(std::string_view name) const;  // null when there is none
  const Option& at(std::string_view name) const;    // a bug when there is none
  bool is_section(std::string_view name) const;     // true for "quantize" as well, which has only nested ones

  Option& add(Option option);
  void add_section(std::string name, std::string meaning);

 private:
  std::deque<Option> options_;  // a deque, because declarations chain on references into it
  std::map<std::string_view, const Option*> by_name_;
  std::vector<SectionTitle> sections_;
};

// Built on first use; the only instance.
const Schema& schema();

// How a section declares its options.
template <typename T>
class Section {
 public:
  using Find = std::function<T&(JobConfig&)>;

  Section(Schema& schema, std::string name, std::string meaning, Find find)
      : schema_(schema), name_(std::move(name)), find_(std::move(find)) {
    schema_.add_section(name_, std::move(meaning));
  }
  Section(Schema& schema, std::string name, std::string meaning, T JobConfig::* member)
      : Section(schema, std::move(name), std::move(meaning), Find([member](JobConfig& c) -> T& { return c.*member; })) {
  }

  template <typename M>
  Option& option(const std::string& key, M T::* member, std::string meaning);

  // All options of the section itself are declared before its first nested section.
  template <typename N>
  Section<N> section(const std::string& key, N T::* member, std::string meaning) {
    return Section<N>(schema_, name_ + "." + key, std::move(meaning),
                      [find = find_, member](JobConfig& config) -> N& { return find(config).*member; });
  }

 private:
  Schema& schema_;
  std::string name_;
  Find find_;
};

namespace detail {

template <typename M>
struct Nullable {
  static constexpr bool kValue = false;
  using Inner = M;
};
template <typename M>
struct Nullable<std::optional<M>> {
  static constexpr bool kValue = true;
  using Inner = M;
};

template <typename M>
constexpr Type type_of() {
  if constexpr (std::is_same_v<M, bool>) return Type::kSwitch;
  if constexpr (std::is_same_v<M, int64_t>) return Type::kInteger;
  if constexpr (std::is_same_v<M, double>) return Type::kNumber;
  if constexpr (std::is_same_v<M, std::string>) return Type::kText;
  if constexpr (std::is_same_v<M, Names>) return Type::kList;
  if constexpr (std::is_same_v<M, std::vector<Names>>) return Type::kListOfLists;
  if constexpr (std::is_same_v<M, std::vector<Table>>) return Type::kTables;
}

}  // namespace detail

template <typename T>
template <typename M>
Option& Section<T>::option(const std::string& key, M T::* member, std::string meaning) {
  using Inner = typename detail::Nullable<M>::Inner;
  const auto get = [find = find_, member](const JobConfig& config) -> Value {
    const M& place = find(const_cast<JobConfig&>(config)).*member;  // `find` only walks to the member
    if constexpr (detail::Nullable<M>::kValue) return place ? Value(*place) : Value();
    if constexpr (std::is_same_v<M, std::vector<Table>>) return from_tables(place);
    if constexpr (!detail::Nullable<M>::kValue && !std::is_same_v<M, std::vector<Table>>) return Value(place);
  };
  const auto set = [find = find_, member](JobConfig& config, const Value& value) {
    M& place = find(config).*member;
    if constexpr (detail::Nullable<M>::kValue) {
      if (value.is_null()) return place.reset();
    }
    if constexpr (std::is_same_v<M, std::vector<Table>>) {
      place = to_tables(value);
    } else {
      place = value.get<Inner>();
    }
  };
  return schema_.add(
      Option(name_ + "." + key, std::move(meaning), detail::type_of<Inner>(), detail::Nullable<M>::kValue, get, set));
}

}  // namespace titanium::config
