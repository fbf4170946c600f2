#include "titanium/data/tokenizer/training/bpe_merges.h"

#include <algorithm>
#include <array>
#include <queue>
#include <unordered_map>

#include "titanium/base/error.h"

namespace titanium::data {
namespace {

using Pair = uint64_t;

Pair pair_of(TokenId left, TokenId right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

struct PairHash {
  size_t operator()(Pair pair) const { return (pair ^ (pair >> 29)) * 0x9E3779B97F4A7C15u; }
};

struct PairState {
  int64_t count = 0;
  std::vector<uint32_t> words;  // where the pair occurs or once occurred
  bool merged = false;
};

struct Candidate {
  int64_t count;
  Pair pair;

  // For a heap whose top has the largest count, then the smallest pair.
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class Learner {
 public:
  Learner(const std::vector<CountedWord>& words, std::vector<std::string> first_tokens) {
    learned_.tokens = std::move(first_tokens);
    for (size_t id = 0; id < learned_.tokens.size(); ++id) ids_[learned_.tokens[id]] = static_cast<TokenId>(id);
    cut_into_bytes(words);
    count_pairs();
  }

  LearnedMerges run(size_t vocab_size, int64_t min_pair_count, const std::function<void(size_t)>& progress) {
    while (learned_.tokens.size() < vocab_size && !heap_.empty()) {
      const Candidate best = heap_.top();
      heap_.pop();
      PairState& state = pairs_.at(best.pair);
      if (state.count != best.count) {
        if (state.count > 0) heap_.push({state.count, best.pair});
        continue;
      }
      if (best.count < min_pair_count) break;
      merge(best.pair, state);
      progress(learned_.tokens.size());
    }
    return std::move(learned_);
  }

 private:
  struct Word {
    size_t begin;
    uint32_t length;
    int64_t count;
  };

  void cut_into_bytes(const std::vector<CountedWord>& words) {
    std::array<TokenId, 256> byte_ids;
    for (size_t byte = 0; byte < byte_ids.size(); ++byte) {
      byte_ids[byte] = ids_.at(std::string(1, static_cast<char>(byte)));
    }
    for (const CountedWord& word : words) {
      words_.push_back({symbols_.size(), static_cast<uint32_t>(word.bytes.size()), word.count});
      for (const char c : word.bytes) symbols_.push_back(byte_ids[static_cast<unsigned char>(c)]);
    }
  }

  void count_pairs() {
    for (uint32_t w = 0; w < words_.size(); ++w) {
      const TokenId* symbols = symbols_.data() + words_[w].begin;
      for (uint32_t i = 0; i + 1 < words_[w].length; ++i) change(symbols[i], symbols[i + 1], w, 1);
    }
    for (const auto& [pair, state] : pairs_) heap_.push({state.count, pair});
    grown_.clear();
  }

  // A pair appears in a word (sign 1) or disappears from it (-1).
  void change(TokenId left, TokenId right, uint32_t word, int sign) {
    const Pair pair = pair_of(left, right);
    PairState& state = pairs_[pair];
    state.count += sign * words_[word].count;
    if (sign < 0) return;
    if (state.words.empty() || state.words.back() != word) state.words.push_back(word);
    if (grown_.empty() || grown_.back() != pair) grown_.push_back(pair);
  }

  void merge(Pair pair, PairState& state) {
    const auto left = static_cast<TokenId>(pair >> 32);
    const auto right = static_cast<TokenId>(pair);
    const std::string text = learned_.tokens[static_cast<size_t>(left)] + learned_.tokens[static_cast<size_t>(right)];
    const auto [entry, is_first] = ids_.try_emplace(text, static_cast<TokenId>(learned_.tokens.size()));
    if (is_first) learned_.tokens.push_back(text);
    // Two ways to one token can make a pair appear again after its merge; it then has its place already.
    if (!std::exchange(state.merged, true)) learned_.merges.emplace_back(left, right);
    const std::vector<uint32_t> where = std::move(state.words);
    state.words.clear();
    for (const uint32_t word : where) merge_in_word(word, left, right, entry->second);
    state.count = 0;
    std::ranges::sort(grown_);
    grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
    for (const Pair grown : grown_) {
      if (const int64_t count = pairs_.at(grown).count; count > 0) heap_.push({count, grown});
    }
    grown_.clear();
  }

  void merge_in_word(uint32_t index, TokenId left, TokenId right, TokenId merged) {
    Word& word = words_[index];
    TokenId* symbols = symbols_.data() + word.begin;
    uint32_t out = 0;
    for (uint32_t i = 0; i < word.length; ++out) {
      if (i + 1 == word.length || symbols[i] != left || symbols[i + 1] != right) {
        symbols[out] = symbols[i++];
        continue;
      }
      if (out > 0) {
        change(symbols[out - 1], left, index, -1);
        change(symbols[out - 1], merged, index, 1);
      }
      if (i + 2 < word.length) {
        change(right, symbols[i + 2], index, -1);
        change(merged, symbols[i + 2], index, 1);
      }
      symbols[out] = merged;
      i += 2;
    }
    word.length = out;
  }

  LearnedMerges learned_;
  std::unordered_map<std::string, TokenId, StringHash, std::equal_to<>> ids_;
  std::vector<TokenId> symbols_;
  std::vector<Word> words_;
  std::unordered_map<Pair, PairState, PairHash> pairs_;
  std::priority_queue<Candidate> heap_;
  std::vector<Pair> grown_;  // pairs that got occurrences in this merge
};

}  // namespace

LearnedMerges learn_merges(const std::vector<CountedWord>& words, std::vector<std::string> first_tokens,
                           size_t vocab_size, int64_t min_pair_count, const std::function<void(size_t)>& progress) {
  return Learner(words, std::move(first_tokens)).run(vocab_size, min_pair_count, progress);
}

}  // namespace titanium::data
