// JSON that comes from files, other processes or the command line: the only place that calls the JSON library's
// parser.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "titanium/base/error.h"

namespace titanium {

// What is wrong with a text, as the end of a sentence that begins with its name: "is not valid JSON (at byte 12)".
class JsonError : public Error {
 public:
  using Error::Error;
};

struct JsonLimits {
  int depth = 64;            // of arrays and objects inside each other
  bool unique_keys = false;  // whether a key that an object has twice is refused; else the last one counts
};

// The one value that `text` holds. Time and memory stay in proportion to the text, and the limited depth makes
// recursion over the value safe. Throws JsonError when it is not JSON, not UTF-8, or beyond the limits.
nlohmann::json parse_json(std::string_view text, const JsonLimits& limits = {});

// The same with the members of every object in the order of the text. Keys are unique whatever `limits` say, because
// such an object finds a key only by looking at all of them.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const JsonLimits& limits = {});

// The integer that a value is. Throws JsonError for every other value, which the JSON library would convert: a
// fraction, or a number that no int64_t holds.
int64_t integer_of(const nlohmann::json& value);
int64_t integer_of(const nlohmann::ordered_json& value);

}  // namespace titanium
