#include <charconv>

#include "titanium/base/text/base64.h"
#include "titanium/data/tokenizer/files/tokenizer_parts.h"
#include "titanium/data/tokenizer/text/byte_alphabet.h"

namespace titanium::data {
namespace {

constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

using Names = std::vector<std::string>;

void append_numbered(Names& names, const char* format, int first, int count) {
  for (int i = first; i < first + count; ++i) names.push_back(fmt::format(fmt::runtime(format), i));
}

Names llama3_specials() {
  Names names = {"<|begin_of_text|>",
                 "<|end_of_text|>",
                 "<|reserved_special_token_0|>",
                 "<|reserved_special_token_1|>",
                 "<|finetune_right_pad_id|>",
                 "<|step_id|>",
                 "<|start_header_id|>",
                 "<|end_header_id|>",
                 "<|eom_id|>",
                 "<|eot_id|>",
                 "<|python_tag|>",
                 "<|image|>"};
  append_numbered(names, "<|reserved_special_token_{}|>", 2, 256 - 12);
  return names;
}

Names llama4_specials() {
  Names names = {"<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
                 "<|header_start|>",  "<|header_end|>",  "<|eom|>",        "<|eot|>",        "<|step|>"};
  append_numbered(names, "<|text_post_train_reserved_special_token_{}|>", 0, 6);
  names.insert(names.end(), {"<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>"});
  append_numbered(names, "<|text_post_train_reserved_special_token_{}|>", 8, 61);
  names.insert(names.end(), {"<|image_start|>", "<|image_end|>"});
  append_numbered(names, "<|vision_reserved_special_token_{}|>", 0, 2);
  names.insert(names.end(), {"<|tile_x_separator|>", "<|tile_y_separator|>"});
  append_numbered(names, "<|vision_reserved_special_token_{}|>", 2, 4);
  names.insert(names.end(), {"<|image|>", "<|vision_reserved_special_token_6|>", "<|patch|>"});
  append_numbered(names, "<|vision_reserved_special_token_{}|>", 7, 1041);
  append_numbered(names, "<|reasoning_reserved_special_token_{}|>", 0, 8);
  names.insert(names.end(), {"<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"});
  append_numbered(names, "<|reserved_special_token_{}|>", 0, 2048 - static_cast<int>(names.size()));
  return names;
}

Names qwen_specials() {
  Names names = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  append_numbered(names, "<|extra_{}|>", 0, 205);
  return names;
}

Names gpt_oss_specials() {
  Names names = {"<|startoftext|>", "<|endoftext|>",       "<|reserved_200000|>", "<|reserved_200001|>", "<|return|>",
                 "<|constrain|>",   "<|reserved_200004|>", "<|channel|>",         "<|start|>",           "<|end|>",
                 "<|message|>",     "<|reserved_200009|>", "<|reserved_200010|>", "<|reserved_200011|>", "<|call|>"};
  append_numbered(names, "<|reserved_{}|>", 200013, 5);
  names.emplace_back("<|endofprompt|>");
  append_numbered(names, "<|reserved_{}|>", 200019, 201088 - 200019);
  return names;
}

Names gpt2_specials() { return {"<|endoftext|>"}; }

// Whose ranks these are. Ids of special tokens follow the ranks.
struct RankFamily {
  size_t ranks;
  const char* name;
  const char* pattern;
  Names (*specials)();
  const char* bos;  // may be null
  const char* eos;
  bool nfc = false;
};

constexpr RankFamily kRankFamilies[] = {
    {128000, "Llama 3", kLlama3Pattern, llama3_specials, "<|begin_of_text|>", "<|end_of_text|>"},
    {200000, "Llama 4", kO200kPattern, llama4_specials, "<|begin_of_text|>", "<|end_of_text|>"},
    {151643, "Qwen", kQwenPattern, qwen_specials, nullptr, "<|endoftext|>", true},
    {199998, "GPT-OSS", kO200kPattern, gpt_oss_specials, "<|startoftext|>", "<|return|>"},
    {50256, "GPT-2", kGpt2Pattern, gpt2_specials, nullptr, "<|endoftext|>"},
};

constexpr int64_t kMostSpecials = 1 << 16;  // Mistral's files have 1000

struct RankedToken {
  std::string bytes;
  uint32_t rank;
};

std::vector<RankedToken> parse_ranks(std::string_view content) {
  std::vector<RankedToken> tokens;
  int64_t line_number = 0;
  while (!content.empty()) {
    ++line_number;
    const size_t end = content.find('\n');
    std::string_view line = content.substr(0, end);
    content.remove_prefix(end == std::string_view::npos ? content.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t space = line.find(' ');
    auto bytes = from_base64(line.substr(0, space));
    uint32_t rank = 0;
    const std::string_view number = space == std::string_view::npos ? "" : line.substr(space + 1);
    const auto parsed = std::from_chars(number.data(), number.data() + number.size(), rank);
    TI_CHECK(bytes && !bytes->empty() && !number.empty() && parsed.ec == std::errc() && rank <= 1u << 30 &&
                 parsed.ptr == number.data() + number.size(),
             "line {} is not a token in base64 and its rank: {}. Fetch the file again.", line_number,
             printable(line, 60));
    tokens.push_back({std::move(*bytes), rank});
  }
  return tokens;
}

// Ids are ranks + `first_id`; `specials` have the ids below or, where first_id is 0, above.
BpeTables tables_of_ranks(const std::vector<RankedToken>& tokens, TokenId first_id, const Names& specials_below) {
  TokenList spelled, words;
  std::vector<RankedPiece> pieces;
  for (size_t i = 0; i < specials_below.size(); ++i) spelled.emplace_back(specials_below[i], static_cast<TokenId>(i));
  std::array<bool, 256> bytes_seen{};
  for (const RankedToken& token : tokens) {
    const TokenId id = static_cast<TokenId>(token.rank) + first_id;
    spelled.emplace_back(to_byte_alphabet(token.bytes), id);
    words.emplace_back(token.bytes, id);
    pieces.push_back({token.bytes, id, token.rank});
    if (token.bytes.size() == 1) bytes_seen[static_cast<unsigned char>(token.bytes[0])] = true;
  }
  const auto missing = std::ranges::find(bytes_seen, false);
  TI_CHECK(missing == bytes_seen.end(), "the ranks have no token for byte {}. Fetch the file again.",
           missing - bytes_seen.begin());
  return {
      .vocabulary = Vocabulary(spelled), .merges = MergeTable(merges_of_pieces(pieces)), .words = Vocabulary(words)};
}

Json json_of_ranks(const char* pattern, const Names& specials) {
  Json json = {{"pre_tokenizer",
                {{"type", "Sequence"},
                 {"pretokenizers",
                  {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Removed"}, {"invert", true}},
                   {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}}},
               {"decoder", {{"type", "ByteLevel"}}},
               {"model", {{"type", "BPE"}, {"ignore_merges", true}}}};
  Json added = Json::array();
  for (const std::string& name : specials)
    added.push_back({{"content", name}, {"special", true}, {"normalized", false}});
  json["added_tokens"] = std::move(added);
  return json;
}

}  // namespace

TokenizerParts parts_of_ranks(std::string_view content) {
  const std::vector<RankedToken> tokens = parse_ranks(content);
  const auto* family = std::ranges::find(kRankFamilies, tokens.size(), &RankFamily::ranks);
  if (family == std::end(kRankFamilies)) {
    std::vector<std::string> known;
    for (const RankFamily& each : kRankFamilies) known.push_back(fmt::format("{} ({})", each.ranks, each.name));
    throw Error(
        fmt::format("the file has {} ranks, and nothing says how its text is split. Known are files of {} ranks. "
                    "Use the model's tokenizer.json instead.",
                    tokens.size(), fmt::join(known, ", ")));
  }
  Json json = json_of_ranks(family->pattern, family->specials());
  if (family->nfc) json["normalizer"] = {{"type", "NFC"}};
  if (family->bos) json["bos_token"] = family->bos;
  json["eos_token"] = family->eos;
  return {std::move(json), tables_of_ranks(tokens, 0, {})};
}

TokenizerParts parts_of_tekken(const Json& json) {
  const Json& config = field_or_null(json, "config");
  const int64_t special_count = token_id(field_or_null(config, "default_num_special_tokens"));
  const int64_t size = token_id(field_or_null(config, "default_vocab_size"));
  const Json& vocab = list_field(json, "vocab");
  TI_CHECK(special_count > 2 && special_count < size && size - special_count <= static_cast<int64_t>(vocab.size()),
           "the vocabulary of {} tokens does not give the {} of default_vocab_size with {} special ones.", vocab.size(),
           size, special_count);
  TI_CHECK(special_count <= kMostSpecials, "default_num_special_tokens is {}, expected at most {}.", special_count,
           kMostSpecials);
  Names specials = {"<unk>",
                    "<s>",
                    "</s>",
                    "[INST]",
                    "[/INST]",
                    "[AVAILABLE_TOOLS]",
                    "[/AVAILABLE_TOOLS]",
                    "[TOOL_RESULTS]",
                    "[/TOOL_RESULTS]",
                    "[TOOL_CALLS]",
                    "[IMG]",
                    "<pad>",
                    "[IMG_BREAK]",
                    "[IMG_END]",
                    "[PREFIX]",
                    "[MIDDLE]",
                    "[SUFFIX]",
                    "[SYSTEM_PROMPT]",
                    "[/SYSTEM_PROMPT]",
                    "[TOOL_CONTENT]"};
  if (const Json& given = field_or_null(json, "special_tokens"); !given.is_null()) {
    specials.assign(given.size(), "");
    for (const Json& token : given) {
      const auto rank = static_cast<size_t>(token_id(field_or_null(token, "rank")));
      TI_CHECK(rank < specials.size(), "special token {} has rank {}, beyond their number.", shown(token), rank);
      specials[rank] = text_field(token, "token_str");
    }
  }
  TI_CHECK(static_cast<int64_t>(specials.size()) <= special_count, "there are {} special tokens, expected at most {}.",
           specials.size(), special_count);
  append_numbered(specials, "<SPECIAL_{}>", static_cast<int>(specials.size()),
                  static_cast<int>(special_count) - static_cast<int>(specials.size()));
  std::vector<RankedToken> tokens;
  for (int64_t i = 0; i < size - special_count; ++i) {
    const Json& entry = vocab[static_cast<size_t>(i)];
    auto bytes = from_base64(text_field(entry, "token_bytes"));
    TI_CHECK(bytes && !bytes->empty() && token_id(field_or_null(entry, "rank")) == i,
             "entry {} of the vocabulary is not a token of rank {} in base64: {}.", i, i, shown(entry));
    tokens.push_back({std::move(*bytes), static_cast<uint32_t>(i)});
  }
  Json parts = json_of_ranks(text_field(config, "pattern").c_str(), specials);
  parts["bos_token"] = "<s>";
  parts["eos_token"] = "</s>";
  return {std::move(parts), tables_of_ranks(tokens, static_cast<TokenId>(special_count), specials)};
}

}  // namespace titanium::data
