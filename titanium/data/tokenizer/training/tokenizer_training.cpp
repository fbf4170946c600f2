#include "titanium/data/tokenizer/training/tokenizer_training.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "titanium/base/files/file.h"
#include "titanium/data/tokenizer/text/byte_alphabet.h"
#include "titanium/data/tokenizer/text/unicode.h"
#include "titanium/data/tokenizer/training/bpe_merges.h"
#include "titanium/data/tokenizer/training/word_counts.h"

namespace titanium::data {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kBos = "<|begin_of_text|>";
constexpr const char* kEos = "<|end_of_text|>";
constexpr int64_t kSmallestVocabulary = 256 + 2;
constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

OrderedJson byte_level() {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
}

OrderedJson pre_tokenizer_json() {
  const OrderedJson split = {
      {"type", "Split"}, {"pattern", {{"Regex", kLlama3Pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, byte_level()}}};
}

// The special tokens and the bytes, these in the order of their characters in the byte alphabet.
std::vector<std::string> first_tokens() {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  std::ranges::sort(bytes, {}, [](const std::string& byte) { return first_code_point(to_byte_alphabet(byte)); });
  bytes.insert(bytes.begin(), {kBos, kEos});
  return bytes;
}

OrderedJson special_token(const char* content) {
  return {{"content", content}, {"single_word", false}, {"lstrip", false},
          {"rstrip", false},    {"normalized", false},  {"special", true}};
}

OrderedJson tokenizer_json(const LearnedMerges& learned) {
  const auto spell = [&](TokenId id) {
    const std::string& token = learned.tokens[static_cast<size_t>(id)];
    return id < 2 ? token : to_byte_alphabet(token);
  };
  OrderedJson vocab = OrderedJson::object();
  // Ordered objects look a key up in linear time when one is set; tokens differ, so they can be appended unseen.
  auto& entries = vocab.get_ref<OrderedJson::object_t&>();
  for (size_t id = 0; id < learned.tokens.size(); ++id) {
    entries.Container::emplace_back(spell(static_cast<TokenId>(id)), id);
  }
  OrderedJson merges = OrderedJson::array();
  for (const auto& [left, right] : learned.merges) merges.push_back({spell(left), spell(right)});

  OrderedJson added = OrderedJson::array();
  for (int id = 0; id < 2; ++id) {
    OrderedJson token = {{"id", id}};
    token.update(special_token(id == 0 ? kBos : kEos));
    added.push_back(std::move(token));
  }
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", std::move(added)},
          {"normalizer", nullptr},
          {"pre_tokenizer", pre_tokenizer_json()},
          {"post_processor", byte_level()},
          {"decoder", byte_level()},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", std::move(vocab)},
            {"merges", std::move(merges)}}}};
}

OrderedJson tokenizer_config() {
  return {{"added_tokens_decoder", {{"0", special_token(kBos)}, {"1", special_token(kEos)}}},
          {"bos_token", kBos},
          {"eos_token", kEos},
          {"clean_up_tokenization_spaces", false},
          {"tokenizer_class", "PreTrainedTokenizerFast"}};
}

int64_t size_of(const std::vector<std::filesystem::path>& inputs) {
  int64_t bytes = 0;
  for (const auto& input : inputs) {
    if (!std::filesystem::is_regular_file(input)) {
      throw UsageError(fmt::format("input file {} does not exist. Check the path.", input.string()));
    }
    bytes += static_cast<int64_t>(std::filesystem::file_size(input));
  }
  return bytes;
}

}  // namespace

int64_t train_tokenizer(const TokenizerTraining& training, const std::filesystem::path& folder,
                        const TrainingProgress& progress) {
  if (training.vocab_size < kSmallestVocabulary) {
    throw UsageError(fmt::format("vocabulary size {} is too small: the bytes and the special tokens alone are {}.",
                                 training.vocab_size, kSmallestVocabulary));
  }
  const int64_t bytes = size_of(training.inputs);
  const auto pre_tokenizer = PreTokenizer::from_json(Json(pre_tokenizer_json()));
  const std::vector<CountedWord> words = count_words(training.inputs, pre_tokenizer, training.threads,
                                                     [&](int64_t done) { progress("counting words", done, bytes); });
  progress("counting words", bytes, bytes);
  const LearnedMerges learned = learn_merges(
      words, first_tokens(), static_cast<size_t>(training.vocab_size), training.min_pair_count,
      [&](size_t tokens) { progress("merging pairs", static_cast<int64_t>(tokens), training.vocab_size); });
  write_file_atomically(folder / "tokenizer.json", tokenizer_json(learned).dump(1));
  write_file_atomically(folder / "tokenizer_config.json", tokenizer_config().dump(2));
  return static_cast<int64_t>(learned.tokens.size());
}

}  // namespace titanium::data
