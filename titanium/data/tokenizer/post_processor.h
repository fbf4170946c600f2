// The "post_processor" of tokenizer.json: tokens that every text gets at its begin and end.
#pragma once

#include <vector>

#include "titanium/data/tokenizer/files/json_fields.h"
#include "titanium/data/tokenizer/model/vocabulary.h"

namespace titanium::data {

// TemplateProcessing for single texts, RobertaProcessing and BertProcessing (one token at each end), ByteLevel (which
// changes no ids) and Sequences of them.
class PostProcessor {
 public:
  // Throws Error for any other type, for a second template and for a template that names an unknown token.
  static PostProcessor from_json(const Json& json);

  // The ids of a text within the template.
  std::vector<TokenId> apply(std::vector<TokenId> ids) const;

 private:
  void append(const Json& json);
  void append_template(const Json& json);
  void append_ends(const Json& json);

  struct Piece {
    bool is_text;
    std::vector<TokenId> ids;  // unless is_text
  };
  std::vector<Piece> pieces_;  // empty: the text alone
  bool has_template_ = false;
};

}  // namespace titanium::data
