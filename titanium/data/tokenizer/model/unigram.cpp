#include "titanium/data/tokenizer/model/unigram.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "titanium/base/error.h"
#include "titanium/data/tokenizer/text/unicode.h"

namespace titanium::data {
namespace {

constexpr size_t kLongestWord = size_t{16} << 20;  // bytes; cutting takes 16 to 24 more for each
constexpr float kUnknownPenalty = 10;              // below the lowest score
constexpr float kLargestSum = 100'000;             // beyond which sums begin again at 0, so that scores still count

// Above every sum of scores, which are logarithms of probabilities, of the same bytes.
float user_defined_score(size_t bytes) { return static_cast<float>(0.1 * (static_cast<double>(bytes) - 1)); }

}  // namespace

UnigramTables tables_of_pieces(Vocabulary vocabulary, const std::vector<UnigramPiece>& pieces) {
  UnigramTables tables{.vocabulary = std::move(vocabulary), .trie = {}, .ids = {}, .scores = {}, .user_defined = {}};
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (const UnigramPiece& piece : pieces) {
    entries.emplace_back(piece.text, static_cast<int32_t>(tables.ids.size()));
    tables.ids.push_back(piece.id);
    tables.scores.push_back(piece.score);
    tables.user_defined.push_back(piece.user_defined);
  }
  tables.trie = PieceTrie(std::move(entries));
  return tables;
}

Unigram::Unigram(UnigramTables tables, const UnigramOptions& options) : tables_(std::move(tables)), options_(options) {
  float lowest = std::numeric_limits<float>::max();
  for (size_t i = 0; i < tables_.scores.size(); ++i) {
    if (!tables_.user_defined[i]) lowest = std::min(lowest, tables_.scores[i]);
  }
  unk_score_ = lowest - kUnknownPenalty;
  if (!options_.byte_fallback) return;
  for (int byte = 0; byte < 256; ++byte) {
    const auto id = vocabulary().id(fmt::format("<0x{:02X}>", byte));
    TI_CHECK(id, "byte_fallback is on and the vocabulary has no <0x{:02X}>.", byte);
    byte_ids_.push_back(*id);
  }
}

// The best step to every place, from left to right. Sums of floats are in the same order and begin again at the same
// places as in SentencePiece, so that ties fall the same way.
template <typename Score>
std::vector<Unigram::Step<Score>> Unigram::best_steps(std::string_view word) const {
  constexpr bool kBeginsAgain = std::is_same_v<Score, float>;
  std::vector<Step<Score>> best(word.size() + 1);
  size_t frontier = 0;  // the last place that was reached
  for (size_t begin = 0; begin < word.size();) {
    const Score sum = best[begin].score;
    if (kBeginsAgain && (sum < -kLargestSum || sum > kLargestSum)) {
      for (size_t i = begin; i <= frontier; ++i) best[i].score -= best[i].from >= 0 || i == begin ? sum : 0;
    }
    const Score here = best[begin].score;
    const size_t character = std::min(utf8_length(word[begin]), word.size() - begin);
    const auto offer = [&](size_t end, Score score, int32_t piece) {
      Step<Score>& step = best[end];
      frontier = std::max(frontier, end);
      if (step.from < 0 || score > step.score) step = {score, piece, static_cast<int64_t>(begin)};
    };
    bool has_character = false;
    uint32_t node = PieceTrie::kRoot;
    for (size_t end = begin; end < word.size();) {
      node = tables_.trie.step(node, static_cast<unsigned char>(word[end++]));
      if (node == PieceTrie::kNowhere) break;
      const int32_t piece = tables_.trie.value(node);
      if (piece < 0) continue;
      const auto index = static_cast<size_t>(piece);
      const float score = tables_.user_defined[index] ? user_defined_score(end - begin) : tables_.scores[index];
      offer(end, score + here, piece);
      has_character |= end - begin == character;
    }
    if (!has_character) offer(begin + character, unk_score_ + here, -1);
    begin += character;
  }
  return best;
}

void Unigram::encode(std::string_view word, std::vector<TokenId>& ids) const {
  TI_CHECK(word.size() <= kLongestWord, "a text of {} bytes is longer than {}, the most that the tokenizer takes.",
           word.size(), kLongestWord);
  options_.double_sums ? append_best<double>(word, ids) : append_best<float>(word, ids);
}

template <typename Score>
void Unigram::append_best(std::string_view word, std::vector<TokenId>& ids) const {
  const std::vector<Step<Score>> best = best_steps<Score>(word);
  std::vector<std::pair<size_t, size_t>> cuts;  // backwards
  for (size_t end = word.size(); end > 0;) {
    const auto begin = static_cast<size_t>(best[end].from);
    cuts.emplace_back(begin, end);
    end = begin;
  }
  bool after_unknown = false;
  for (const auto& [begin, end] : std::vector(cuts.rbegin(), cuts.rend())) {
    const int32_t piece = best[end].piece;
    if (piece >= 0) {
      ids.push_back(tables_.ids[static_cast<size_t>(piece)]);
    } else if (options_.byte_fallback) {
      for (const char c : word.substr(begin, end - begin)) ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    } else if (!after_unknown) {
      ids.push_back(options_.unk_id);
    }
    after_unknown = piece < 0;
  }
}

}  // namespace titanium::data
