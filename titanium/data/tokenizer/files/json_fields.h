// Reading fields of tokenizer.json with errors that name the field.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "titanium/base/error.h"
#include "titanium/base/text/printable.h"

namespace titanium::data {

using Json = nlohmann::json;

// The value of `key`, or null when `object` has none.
inline const Json& field_or_null(const Json& object, const char* key) {
  static const Json null;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() ? *found : null;
}

// A value for a message.
inline std::string shown(const Json& value) {
  return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace), 80);
}

inline bool flag(const Json& object, const char* key, bool otherwise) {
  const Json& value = field_or_null(object, key);
  TI_CHECK(value.is_null() || value.is_boolean(), "\"{}\" is {}, expected true or false.", key, shown(value));
  return value.is_null() ? otherwise : value.get<bool>();
}

inline const std::string& text_field(const Json& object, const char* key) {
  const Json& value = field_or_null(object, key);
  TI_CHECK(value.is_string(), "\"{}\" is {}, expected a string.", key, shown(value));
  return value.get_ref<const std::string&>();
}

inline const Json& list_field(const Json& object, const char* key) {
  const Json& value = field_or_null(object, key);
  TI_CHECK(value.is_array(), "\"{}\" is {}, expected a list.", key, shown(value));
  return value;
}

// A token id. Ids end far below the range of the type, so that counting on from the largest is safe.
inline int32_t token_id(const Json& value) {
  constexpr int64_t kMaxId = 1 << 30;
  const bool fits = value.is_number_integer() && value >= 0 && value <= kMaxId;
  TI_CHECK(fits, "a token id is {}, expected a whole number from 0 to {}.", shown(value), kMaxId);
  return value.get<int32_t>();
}

// The "type" of a part of the tokenizer such as "pre_tokenizer".
inline const std::string& type_of(const Json& part, std::string_view what) {
  const Json& type = field_or_null(part, "type");
  TI_CHECK(type.is_string(), "the {} has no \"type\".", what);
  return type.get_ref<const std::string&>();
}

[[noreturn]] inline void refuse_type(std::string_view what, std::string_view type, std::string_view supported) {
  throw Error(fmt::format("{} type {} is not supported. Supported are: {}.", what, printable(type), supported));
}

}  // namespace titanium::data
