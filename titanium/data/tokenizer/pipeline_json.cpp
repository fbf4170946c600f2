#include "titanium/data/tokenizer/pipeline.h"

namespace titanium::data {
namespace {

Decoder parse_decoder(const Json& json) {
  if (json.is_null()) return Decoder::kJoinWithSpaces;
  const std::string& type = type_of(json, "decoder");
  if (type == "ByteLevel") return Decoder::kByteLevel;
  if (type == "Sequence") {
    const Json& decoders = list_field(json, "decoders");
    if (decoders.size() == 1) return parse_decoder(decoders[0]);
    throw Error("a decoder Sequence of several decoders is not supported.");
  }
  refuse_type("decoder", type, "ByteLevel, Sequence");
}

Vocabulary parse_vocabulary(const Json& vocab) {
  TI_CHECK(vocab.is_object(), "the model's \"vocab\" is not an object of tokens and ids.");
  Vocabulary vocabulary;
  for (const auto& [token, id] : vocab.items()) vocabulary.add(token, token_id(id));
  return vocabulary;
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

Bpe parse_model(const Json& model, bool byte_level) {
  // Old files have no type; BPE is then told by its merges.
  const bool bpe = field_or_null(model, "type").is_null() ? !field_or_null(model, "merges").is_null()
                                                          : type_of(model, "model") == "BPE";
  BpeOptions options{.byte_level = byte_level};
  if (const Json& unk = field_or_null(model, "unk_token"); !unk.is_null())
    options.unk_token = text_field(model, "unk_token");
  if (!bpe) {
    if (type_of(model, "model") != "WordLevel") refuse_type("model", type_of(model, "model"), "BPE, WordLevel");
    options.whole_words = true;
    return Bpe(parse_vocabulary(field_or_null(model, "vocab")), {}, std::move(options));
  }
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) refuse_option(model, key);
  options.fuse_unk = flag(model, "fuse_unk", false);
  options.byte_fallback = flag(model, "byte_fallback", false);
  options.ignore_merges = flag(model, "ignore_merges", false);
  return Bpe(parse_vocabulary(field_or_null(model, "vocab")), parse_merges(field_or_null(model, "merges")),
             std::move(options));
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
                      .special = flag(json, "special", false)});
  }
  return tokens;
}

}  // namespace

Pipeline parse_pipeline(const Json& json) {
  TI_CHECK(json.is_object(), "the file is not a JSON object.");
  for (const char* key : {"truncation", "padding"}) {
    TI_CHECK(field_or_null(json, key).is_null(), "\"{}\" is not supported. Set it to null.", key);
  }
  PreTokenizer pre_tokenizer = PreTokenizer::from_json(field_or_null(json, "pre_tokenizer"));
  Bpe model = parse_model(field_or_null(json, "model"), pre_tokenizer.byte_level());
  Pipeline pipeline(Normalizer::from_json(field_or_null(json, "normalizer")), std::move(pre_tokenizer),
                    std::move(model), PostProcessor::from_json(field_or_null(json, "post_processor")),
                    parse_decoder(field_or_null(json, "decoder")));
  pipeline.add_tokens(parse_added_tokens(field_or_null(json, "added_tokens")));
  return pipeline;
}

}  // namespace titanium::data
