// A picture and its caption out of a sample of WebDataset.
#pragma once

#include <string>
#include <string_view>

#include "titanium/data/record_source.h"

namespace titanium::data {

struct ImageText {
  std::string key;
  std::string_view image;  // as it is stored; lives as long as the record
  std::string caption;
};

// The picture is the part that ends in .jpg, .jpeg, .png or .webp; the caption is the part that ends in .txt, or else
// the field "caption" of the one that ends in .json: a string, or the first of a list of strings. Throws BadRecord when
// one of them is missing or empty, or the caption is not UTF-8.
ImageText image_text(const Record& record);

// The sentence for a sample that cannot be used: file, key, what is wrong and the remedy.
std::string refusal(const Record& record, std::string_view key, const std::string& problem);

}  // namespace titanium::data
