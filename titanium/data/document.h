// From a record to the text of its document.
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

// The string in field `field` of a JSON record, or all of a text file. Throws BadRecord when the record is not valid
// JSON, not an object, has no such field, or holds something else than a string there.
std::string document_text(const Record& record, const std::string& field);

}  // namespace titanium::data
