#include "titanium/data/tokenizer/post_processor.h"

namespace titanium::data {

PostProcessor PostProcessor::from_json(const Json& json) {
  PostProcessor result;
  if (!json.is_null()) result.append(json);
  return result;
}

void PostProcessor::append(const Json& json) {
  const std::string& type = type_of(json, "post_processor");
  if (type == "Sequence") {
    for (const Json& part : list_field(json, "processors")) append(part);
  } else if (type == "ByteLevel") {
    return;
  } else if (type == "TemplateProcessing" || type == "RobertaProcessing" || type == "BertProcessing") {
    TI_CHECK(!has_template_, "the post_processor has two templates, expected one.");
    has_template_ = true;
    type == "TemplateProcessing" ? append_template(json) : append_ends(json);
  } else {
    refuse_type("post_processor", type, "TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel, Sequence");
  }
}

void PostProcessor::append_ends(const Json& json) {
  const auto end = [&](const char* name) {
    const Json& token = list_field(json, name);
    TI_CHECK(token.size() == 2, "the post_processor's \"{}\" is {}, expected [\"token\", id].", name, shown(token));
    return Piece{.is_text = false, .ids = {token_id(token[1])}};
  };
  pieces_ = {end("cls"), {.is_text = true, .ids = {}}, end("sep")};
}

void PostProcessor::append_template(const Json& json) {
  for (const Json& piece : list_field(json, "single")) {
    if (const Json& text = field_or_null(piece, "Sequence"); !text.is_null()) {
      TI_CHECK(text_field(text, "id") == "A", "the template for a single text names a second text.");
      pieces_.push_back({.is_text = true, .ids = {}});
      continue;
    }
    const std::string& name = text_field(field_or_null(piece, "SpecialToken"), "id");
    const Json& token = field_or_null(field_or_null(json, "special_tokens"), name.c_str());
    TI_CHECK(!token.is_null(), "the post_processor's template uses {}, which its special_tokens do not define.", name);
    Piece special{.is_text = false, .ids = {}};
    for (const Json& id : list_field(token, "ids")) special.ids.push_back(token_id(id));
    pieces_.push_back(std::move(special));
  }
}

std::vector<TokenId> PostProcessor::apply(std::vector<TokenId> ids) const {
  if (!has_template_) return ids;
  std::vector<TokenId> result;
  for (const Piece& piece : pieces_) {
    const std::vector<TokenId>& part = piece.is_text ? ids : piece.ids;
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

}  // namespace titanium::data
