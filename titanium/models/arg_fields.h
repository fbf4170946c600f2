// The fields of a family's arguments as one table, from which follow the line in the log and Hugging Face's config.json
// in both directions.
//
//   const ArgFields<Args>& fields() {
//     static const ArgFields<Args> fields = {
//         field("dim", &Args::dim, "hidden_size"),
//         field("norm_eps", &Args::norm_eps, "rms_norm_eps", [](const Args&) { return 1e-6; }),
//     };
//     return fields;
//   }
#pragma once

#include <functional>
#include <vector>

#include "titanium/models/json_reader.h"

namespace titanium::models {

template <typename Args>
struct ArgField {
  std::string_view name;
  std::string_view key;  // in config.json; empty: not there
  std::function<nlohmann::ordered_json(const Args&)> get;
  std::function<void(const JsonReader&, Args&)> read;
};
template <typename Args>
using ArgFields = std::vector<ArgField<Args>>;

// `member` is int64_t, double, bool or std::string. `missing` gives the value where config.json lacks the key, out of
// the fields before it; without it the key is required. Whole numbers are at most `largest`.
template <typename Args, typename Base, typename T>
ArgField<Args> field(std::string_view name, T Base::* member, std::string_view key = "",
                     const std::type_identity_t<std::function<T(const Args&)>>& missing = nullptr,
                     int64_t largest = int64_t{1} << 22) {
  const auto read = [=](const JsonReader& config, Args& args) {
    if (key.empty()) return;
    if (missing && !config.has(key)) {
      args.*member = missing(args);
    } else if constexpr (std::is_same_v<T, bool>) {
      args.*member = config.flag(key);
    } else if constexpr (std::is_same_v<T, double>) {
      args.*member = config.positive(key);
    } else if constexpr (std::is_same_v<T, int64_t>) {
      args.*member = config.size(key, largest);
    }
  };
  return {name, key, [=](const Args& args) { return nlohmann::ordered_json(args.*member); }, read};
}

// A field of the log line that config.json does not have in this form.
template <typename Args>
ArgField<Args> logged_field(std::string_view name, std::function<nlohmann::ordered_json(const Args&)> get) {
  return {name, "", std::move(get), [](const JsonReader&, Args&) {}};
}

// {"dim": 4096, ...}; what is null is left out.
template <typename Args>
std::string to_json(const Args& args, const ArgFields<Args>& fields) {
  nlohmann::ordered_json json;
  for (const ArgField<Args>& field : fields) {
    nlohmann::ordered_json value = field.get(args);
    if (!value.is_null()) json[std::string(field.name)] = std::move(value);
  }
  return json.dump();
}

// Adds the fields that Hugging Face has under its keys.
template <typename Args>
void add_to_config_json(nlohmann::ordered_json& json, const Args& args, const ArgFields<Args>& fields) {
  for (const ArgField<Args>& field : fields) {
    if (!field.key.empty()) json[std::string(field.key)] = field.get(args);
  }
}

// Reads these, in the order of the table.
template <typename Args>
void read_config_json(const JsonReader& config, Args& args, const ArgFields<Args>& fields) {
  for (const ArgField<Args>& field : fields) field.read(config, args);
}

}  // namespace titanium::models
