#include "titanium/data/tokenizer/files/tokenizer_parts.h"
#include "titanium/data/tokenizer/pipeline.h"
#include "titanium/data/tokenizer/sentencepiece_normalizer.h"

namespace titanium::data {
namespace {

Vocabulary parse_vocabulary(const Json& vocab) {
  TI_CHECK(vocab.is_object(), "the model's \"vocab\" is not an object of tokens and ids.");
  TokenList tokens;
  for (const auto& [token, id] : vocab.items()) tokens.emplace_back(token, token_id(id));
  return Vocabulary(tokens);
}

// The list of pieces and scores of a Unigram model; ids are places in it.
UnigramTables parse_pieces(const Json& model) {
  TokenList tokens;
  std::vector<UnigramPiece> pieces;
  for (const Json& entry : list_field(model, "vocab")) {
    TI_CHECK(entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_number(),
             "a piece is {}, expected [\"text\", score].", shown(entry));
    const auto id = static_cast<TokenId>(pieces.size());
    pieces.push_back({.text = entry[0].get<std::string>(), .id = id, .score = entry[1].get<float>()});
    tokens.emplace_back(pieces.back().text, id);
  }
  const Json& unk = field_or_null(model, "unk_id");
  TI_CHECK(unk.is_number_integer() && unk >= 0 && unk < tokens.size(),
           "the model's \"unk_id\" is {}, expected the place of a piece.", shown(unk));
  return tables_of_pieces(Vocabulary(tokens), pieces);
}

// Both spellings: "left right", and ["left", "right"].
MergeList parse_merges(const Json& list) {
  TI_CHECK(list.is_array(), "the model's \"merges\" is not a list.");
  MergeList merges;
  merges.reserve(list.size());
  for (const Json& merge : list) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    TI_CHECK(merge.is_string(), "a merge is {}, expected \"left right\" or [\"left\", \"right\"].", shown(merge));
    const auto& text = merge.get_ref<const std::string&>();
    if (text.starts_with("#version")) continue;
    const size_t space = text.find(' ');
    TI_CHECK(space != std::string::npos && text.find(' ', space + 1) == std::string::npos,
             "the merge \"{}\" is not two tokens with one space between them.", printable(text));
    merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return merges;
}

void refuse_option(const Json& model, const char* key) {
  const Json& value = field_or_null(model, key);
  const bool off = value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty()) ||
                   (value.is_number() && value.get<double>() == 0);
  TI_CHECK(off, "the model's option {} = {} is not supported.", key, shown(value));
}

// Old files have no type; BPE is then told by its merges.
std::string model_type(const Json& model) {
  if (!field_or_null(model, "type").is_null()) return type_of(model, "model");
  return field_or_null(model, "merges").is_null() ? "WordLevel" : "BPE";
}

std::unique_ptr<const Model> build_model(TokenizerParts& parts, PreTokenizer& pre_tokenizer) {
  const Json& model = field_or_null(parts.json, "model");
  if (auto* unigram = std::get_if<UnigramTables>(&parts.tables)) {
    return std::make_unique<Unigram>(std::move(*unigram),
                                     UnigramOptions{.unk_id = token_id(field_or_null(model, "unk_id")),
                                                    .byte_fallback = flag(model, "byte_fallback", false),
                                                    .double_sums = flag(model, "double_sums", false)});
  }
  auto bpe = std::make_unique<Bpe>(std::move(std::get<BpeTables>(parts.tables)),
                                   parse_bpe_options(model, pre_tokenizer.byte_level()));
  if (pre_tokenizer.does_nothing() && bpe->never_joins_across(kSpaceMark)) pre_tokenizer.cut_before(kSpaceMark);
  return bpe;
}

std::vector<AddedToken> parse_added_tokens(const Json& list) {
  std::vector<AddedToken> tokens;
  if (list.is_null()) return tokens;
  TI_CHECK(list.is_array(), "\"added_tokens\" is not a list.");
  for (const Json& json : list) {
    tokens.push_back({.content = text_field(json, "content"),
                      .single_word = flag(json, "single_word", false),
                      .lstrip = flag(json, "lstrip", false),
                      .rstrip = flag(json, "rstrip", false),
                      .normalized = flag(json, "normalized", true),
                      .special = flag(json, "special", false),
                      .literal = flag(json, "literal", false),
                      .in_text = flag(json, "in_text", true)});
  }
  return tokens;
}

}  // namespace

BpeOptions parse_bpe_options(const Json& model, bool byte_level) {
  BpeOptions options{.byte_level = byte_level};
  if (!field_or_null(model, "unk_token").is_null()) options.unk_token = text_field(model, "unk_token");
  const std::string type = model_type(model);
  if (type == "WordLevel") {
    options.whole_words = true;
    return options;
  }
  if (type != "BPE") refuse_type("model", type, "BPE, WordLevel, Unigram");
  for (const char* key : {"dropout", "continuing_subword_prefix"}) refuse_option(model, key);
  if (!field_or_null(model, "end_of_word_suffix").is_null())
    options.end_of_word_suffix = text_field(model, "end_of_word_suffix");
  options.fuse_unk = flag(model, "fuse_unk", false);
  options.byte_fallback = flag(model, "byte_fallback", false);
  options.ignore_merges = flag(model, "ignore_merges", false);
  return options;
}

TokenizerParts parts_of_json(Json json) {
  TI_CHECK(json.is_object(), "the file is not a JSON object.");
  for (const char* key : {"truncation", "padding"}) {
    TI_CHECK(field_or_null(json, key).is_null(), "\"{}\" is not supported. Set it to null.", key);
  }
  const bool byte_level = PreTokenizer::from_json(field_or_null(json, "pre_tokenizer")).byte_level();
  const Json& model = field_or_null(json, "model");
  if (model_type(model) == "Unigram") {
    UnigramTables tables = parse_pieces(model);
    json["model"].erase("vocab");
    json["model"]["double_sums"] = true;
    return {std::move(json), std::move(tables)};
  }
  const BpeOptions options = parse_bpe_options(model, byte_level);
  BpeTables tables =
      tables_of_merges(parse_vocabulary(field_or_null(model, "vocab")),
                       options.whole_words ? MergeList() : parse_merges(field_or_null(model, "merges")), options);
  const std::string type = model_type(model);
  for (const char* key : {"vocab", "merges"}) json["model"].erase(key);
  json["model"]["type"] = type;
  return {std::move(json), std::move(tables)};
}

Pipeline build_pipeline(TokenizerParts& parts) {
  PreTokenizer pre_tokenizer = PreTokenizer::from_json(field_or_null(parts.json, "pre_tokenizer"));
  std::unique_ptr<const Model> model = build_model(parts, pre_tokenizer);
  Pipeline pipeline(Normalizer::from_json(field_or_null(parts.json, "normalizer")), std::move(pre_tokenizer),
                    std::move(model), PostProcessor::from_json(field_or_null(parts.json, "post_processor")),
                    Decoder::from_json(field_or_null(parts.json, "decoder")));
  pipeline.add_tokens(parse_added_tokens(field_or_null(parts.json, "added_tokens")));
  return pipeline;
}

}  // namespace titanium::data
