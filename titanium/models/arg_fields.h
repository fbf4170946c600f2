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

#include "titanium/base/error.h"
#include "titanium/models/json_reader.h"

namespace titanium::models {

template <typename Args>
struct ArgField {
  std::string_view name;
  std::string_view key;  // in config.json; empty: not there
  std::function<nlohmann::ordered_json(const Args&)> get;
  std::function<void(const JsonReader&, Args&)> read;
  // Takes the value of a key that is there, or throws the UsageError of one that is missing.
  std::function<void(const JsonReader&, std::string_view key, Args&)> take = nullptr;
};
template <typename Args>
using ArgFields = std::vector<ArgField<Args>>;

// `member` is int64_t, double, bool or std::string. `missing` gives the value where config.json lacks the key, out of
// the fields before it; without it the key is required. Whole numbers are at most `largest`.
template <typename Args, typename Base, typename T>
ArgField<Args> field(std::string_view name, T Base::* member, std::string_view key = "",
                     const std::type_identity_t<std::function<T(const Args&)>>& missing = nullptr,
                     int64_t largest = int64_t{1} << 22) {
  const auto take = [=](const JsonReader& config, std::string_view from, Args& args) {
    if constexpr (std::is_same_v<T, bool>) {
      args.*member = config.flag(from);
    } else if constexpr (std::is_same_v<T, double>) {
      args.*member = config.positive(from);
    } else if constexpr (std::is_same_v<T, int64_t>) {
      args.*member = config.size(from, largest);
    } else if constexpr (std::is_same_v<T, std::string>) {
      args.*member = config.text_or(from, args.*member);
    }
  };
  const auto read = [=](const JsonReader& config, Args& args) {
    if (key.empty()) return;
    if (missing && !config.has(key)) {
      args.*member = missing(args);
    } else {
      take(config, key, args);
    }
  };
  return {name, key, [=](const Args& args) { return nlohmann::ordered_json(args.*member); }, read, take};
}

// The same, but the log line has it only where `is_meant`.
template <typename Args>
ArgField<Args> only_where(std::function<bool(const Args&)> is_meant, ArgField<Args> field) {
  field.get = [is_meant = std::move(is_meant), get = std::move(field.get)](const Args& args) {
    return is_meant(args) ? get(args) : nlohmann::ordered_json();
  };
  return field;
}

// A field of the log line that config.json does not have in this form.
template <typename Args>
ArgField<Args> logged_field(std::string_view name, std::function<nlohmann::ordered_json(const Args&)> get) {
  return {name, "", std::move(get), [](const JsonReader&, Args&) {}};
}

// {"dim": 4096, ...}; what is null is left out.
template <typename Args>
nlohmann::ordered_json json_of(const Args& args, const ArgFields<Args>& fields) {
  nlohmann::ordered_json json;
  for (const ArgField<Args>& field : fields) {
    nlohmann::ordered_json value = field.get(args);
    if (!value.is_null()) json[std::string(field.name)] = std::move(value);
  }
  return json;
}
template <typename Args>
std::string to_json(const Args& args, const ArgFields<Args>& fields) {
  return json_of(args, fields).dump();
}

// Adds the fields that Hugging Face has under its keys.
template <typename Args>
void add_to_config_json(nlohmann::ordered_json& json, const Args& args, const ArgFields<Args>& fields) {
  for (const ArgField<Args>& field : fields) {
    if (!field.key.empty()) json[std::string(field.key)] = field.get(args);
  }
}

// What config.json of one family has of a field that several families share.
struct FieldKey {
  std::string_view field;
  std::vector<std::string_view> keys;  // the first is written; the first that is there is read
  bool required = true;                // else the field keeps the value that it has
};
using FieldKeys = std::vector<FieldKey>;

template <typename Args>
const ArgField<Args>& find_field(const ArgFields<Args>& fields, std::string_view name) {
  const auto found = std::ranges::find(fields, name, &ArgField<Args>::name);
  TI_ASSERT(found != fields.end(), "there is no field {}", name);
  return *found;
}

// Both go through `keys` in their order.
template <typename Args>
void add_to_config_json(nlohmann::ordered_json& json, const Args& args, const ArgFields<Args>& fields,
                        const FieldKeys& keys) {
  for (const FieldKey& key : keys) json[std::string(key.keys[0])] = find_field(fields, key.field).get(args);
}
template <typename Args>
void read_config_json(const JsonReader& config, Args& args, const ArgFields<Args>& fields, const FieldKeys& keys) {
  for (const FieldKey& key : keys) {
    const auto there = std::ranges::find_if(key.keys, [&](std::string_view name) { return config.has(name); });
    if (there == key.keys.end() && !key.required) continue;
    find_field(fields, key.field).take(config, there == key.keys.end() ? key.keys[0] : *there, args);
  }
}

// Reads these, in the order of the table.
template <typename Args>
void read_config_json(const JsonReader& config, Args& args, const ArgFields<Args>& fields) {
  for (const ArgField<Args>& field : fields) field.read(config, args);
}

}  // namespace titanium::models
