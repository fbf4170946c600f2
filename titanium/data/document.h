// From a record to the text or the tokens of its document.
#pragma once

#include <string>

#include "titanium/base/error.h"
#include "titanium/data/record_source.h"

namespace titanium::data {

// The record cannot be used. The message names file and line, what is wrong and the remedy.
class BadRecord : public Error {
 public:
  using Error::Error;
};

// Whether the record has tokens that were made elsewhere, and no text.
bool has_tokens(const Record& record);

// The string in field `field` of a JSON record, or the text that the record is. Throws BadRecord when the record is not
// valid JSON, not an object, has no such field, holds something else than a string there, or is null.
// The text lies in the record or, where it is put together, in `storage`.
std::string_view document_text(const Record& record, const std::string& field, std::string& storage);
std::string document_text(const Record& record, const std::string& field);

// The tokens of a record that has tokens. Throws BadRecord when it is null or has a number that is no token id.
std::vector<int32_t> document_tokens(const Record& record);

}  // namespace titanium::data
