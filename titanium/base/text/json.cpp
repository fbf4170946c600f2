#include "titanium/base/text/json.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "titanium/base/text/printable.h"

namespace titanium {
namespace {

// Builds the value while the library reads the text. The library's own builder with a callback looks through a whole
// object after each of its members.
template <typename Json>
class Builder : public nlohmann::json_sax<Json> {
 public:
  using Sax = nlohmann::json_sax<Json>;
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(typename Sax::number_integer_t value) override { return add(value); }
  bool number_unsigned(typename Sax::number_unsigned_t value) override { return add(value); }
  bool number_float(typename Sax::number_float_t value, const typename Sax::string_t&) override { return add(value); }
  bool string(typename Sax::string_t& value) override { return add(std::move(value)); }
  bool binary(typename Sax::binary_t& value) override { return add(std::move(value)); }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(typename Sax::string_t& name) override {
    Level& level = levels_.back();
    if (limits_.unique_keys && !level.keys.insert(name).second) {
      throw JsonError(fmt::format("has the key \"{}\" twice", printable(name)));
    }
    level.key = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw JsonError(fmt::format("is not valid JSON (at byte {})", position));
  }

  Json take() { return std::move(root_); }

 private:
  struct Level {
    Json* container;
    std::string key;                       // of the member that comes next
    std::unordered_set<std::string> keys;  // so far, where they must be unique
  };

  Json& place(Json value) {
    if (levels_.empty()) return root_ = std::move(value);
    Level& level = levels_.back();
    if (level.container->is_array()) {
      level.container->push_back(std::move(value));
      return level.container->back();
    }
    if constexpr (std::is_same_v<Json, nlohmann::ordered_json>) {
      auto& members = level.container->template get_ref<typename Json::object_t&>();
      members.push_back({std::move(level.key), std::move(value)});  // unlike emplace, without a search
      return members.back().second;
    } else {
      return (*level.container)[std::move(level.key)] = std::move(value);
    }
  }
  template <typename T>
  bool add(T&& value) {
    place(Json(std::forward<T>(value)));
    return true;
  }
  bool open(Json container) {
    if (levels_.size() >= static_cast<size_t>(limits_.depth)) {
      throw JsonError(fmt::format("nests deeper than {} arrays and objects", limits_.depth));
    }
    Json& opened = place(std::move(container));
    levels_.push_back({&opened, {}, {}});
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }

  JsonLimits limits_;
  Json root_;
  std::vector<Level> levels_;  // the containers that are open; only the last one grows, so pointers stay valid
};

template <typename Json>
Json parse(std::string_view text, const JsonLimits& limits) {
  Builder<Json> builder(limits);
  Json::sax_parse(text, &builder);
  return builder.take();
}

template <typename Json>
int64_t integer(const Json& value) {
  constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();
  const bool fits = value.is_number_unsigned() ? value.template get<uint64_t>() <= kLargest : value.is_number_integer();
  if (!fits) throw JsonError(fmt::format("has {} where an integer belongs", printable(value.dump(), /*limit=*/40)));
  return value.template get<int64_t>();
}

}  // namespace

nlohmann::json parse_json(std::string_view text, const JsonLimits& limits) {
  return parse<nlohmann::json>(text, limits);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const JsonLimits& limits) {
  return parse<nlohmann::ordered_json>(text, {.depth = limits.depth, .unique_keys = true});
}

int64_t integer_of(const nlohmann::json& value) { return integer(value); }
int64_t integer_of(const nlohmann::ordered_json& value) { return integer(value); }

}  // namespace titanium
