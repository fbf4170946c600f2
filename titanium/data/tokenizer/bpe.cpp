#include "titanium/data/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "titanium/base/error.h"
#include "titanium/base/printable.h"
#include "titanium/data/tokenizer/byte_alphabet.h"
#include "titanium/data/tokenizer/unicode.h"

namespace titanium::data {
namespace {

constexpr size_t kLongestWord = size_t{16} << 20;  // bytes; merging takes 28 more for each
constexpr size_t kShortWord = 96;                  // symbols up to which scanning for the best merge beats a heap
constexpr uint32_t kNoMerge = std::numeric_limits<uint32_t>::max();
constexpr TokenId kNoToken = -1;

}  // namespace

void Vocabulary::add(std::string token, TokenId id) {
  tokens_[id] = token;
  ids_[std::move(token)] = id;
}

std::optional<TokenId> Vocabulary::id(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string* Vocabulary::token(TokenId id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : &found->second;
}

void Bpe::MergeTable::reserve(size_t merges) {
  const size_t size = std::bit_ceil(std::max<size_t>(2, merges * 2));
  slots_.assign(size, {});
  shift_ = 64 - std::countr_zero(size);
}

void Bpe::MergeTable::set(TokenId left, TokenId right, Merge merge) {
  const uint64_t pair = key(left, right);
  size_t at = home(pair);
  while (slots_[at].pair != kEmpty && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
  slots_[at] = {pair, merge};
}

const Bpe::Merge* Bpe::MergeTable::find(TokenId left, TokenId right) const {
  const uint64_t pair = key(left, right);
  for (size_t at = home(pair);; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].pair == pair) return &slots_[at].merge;
    if (slots_[at].pair == kEmpty) return nullptr;
  }
}

Bpe::Bpe(Vocabulary vocabulary, const MergeList& merges, BpeOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  if (options_.unk_token) unk_ = vocabulary_.id(*options_.unk_token);
  if (options_.byte_level) {
    for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
      byte_ids_[byte] = vocabulary_.id(byte_to_character(static_cast<unsigned char>(byte))).value_or(kNoToken);
    }
    has_every_byte_ = std::ranges::find(byte_ids_, kNoToken) == byte_ids_.end();
  }
  if (options_.ignore_merges || options_.whole_words) {
    for (const auto& [token, id] : vocabulary_.ids()) {
      if (const auto word = options_.byte_level ? from_byte_alphabet(token) : token) words_[*word] = id;
    }
  }
  add_merges(merges);
}

void Bpe::add_merges(const MergeList& merges) {
  const auto id_of = [&](const std::string& token) {
    const auto id = vocabulary_.id(token);
    TI_CHECK(id, "a merge needs the token '{}', which is not in the vocabulary.", printable(token));
    return *id;
  };
  merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const TokenId left_id = id_of(left);
    const TokenId right_id = id_of(right);
    merges_.set(left_id, right_id, {static_cast<uint32_t>(rank), id_of(left + right)});
  }
}

void Bpe::encode(std::string_view word, std::vector<TokenId>& ids) const {
  if (options_.whole_words) return encode_whole(word, ids);
  if (options_.ignore_merges) {
    if (const auto found = words_.find(word); found != words_.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  TI_CHECK(word.size() <= kLongestWord, "a word of {} bytes is longer than {}, the most that the tokenizer takes.",
           word.size(), kLongestWord);
  const size_t begin = ids.size();
  append_symbols(word, ids);
  if (ids.size() - begin <= kShortWord) {
    merge_short(ids, begin);
  } else {
    merge_long(ids, begin);
  }
}

void Bpe::encode_whole(std::string_view word, std::vector<TokenId>& ids) const {
  const auto found = words_.find(word);
  TI_CHECK(found != words_.end() || unk_, "the vocabulary has neither the word '{}' nor the unknown token {}.",
           printable(word, 40), printable(options_.unk_token.value_or("[UNK]")));
  ids.push_back(found != words_.end() ? found->second : *unk_);
}

void Bpe::append_symbols(std::string_view word, std::vector<TokenId>& symbols) const {
  if (has_every_byte_) {
    for (const char c : word) symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    return;
  }
  bool pending_unk = false;  // held back like Hugging Face does: byte tokens overtake it
  const auto flush_unk = [&] {
    if (std::exchange(pending_unk, false)) symbols.push_back(*unk_);
  };
  for (size_t at = 0, length = 1; at < word.size(); at += length) {
    if (!options_.byte_level) length = utf8_length(word[at]);
    const std::string_view character =
        options_.byte_level ? byte_to_character(static_cast<unsigned char>(word[at])) : word.substr(at, length);
    if (const auto id = vocabulary_.id(character)) {
      flush_unk();
      symbols.push_back(*id);
    } else if (options_.byte_fallback && append_byte_fallback(character, symbols)) {
      continue;
    } else if (options_.unk_token) {
      TI_CHECK(unk_, "the unknown token {} is not in the vocabulary.", printable(*options_.unk_token));
      if (!options_.fuse_unk) flush_unk();
      pending_unk = true;
    }
  }
  flush_unk();
}

bool Bpe::append_byte_fallback(std::string_view character, std::vector<TokenId>& symbols) const {
  const size_t begin = symbols.size();
  for (const char c : character) {
    const auto id = vocabulary_.id(fmt::format("<0x{:02X}>", static_cast<unsigned char>(c)));
    if (!id) {
      symbols.resize(begin);
      return false;
    }
    symbols.push_back(*id);
  }
  return true;
}

// Keeps the rank of every neighbouring pair and looks through them for the best.
void Bpe::merge_short(std::vector<TokenId>& ids, size_t begin) const {
  size_t count = ids.size() - begin;
  TokenId* symbols = ids.data() + begin;
  std::array<Merge, kShortWord> pairs;
  const auto look_up = [&](size_t i) {
    const Merge* merge = merges_.find(symbols[i], symbols[i + 1]);
    pairs[i] = merge ? *merge : Merge{kNoMerge, kNoToken};
  };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == kNoMerge) break;
    symbols[best] = pairs[best].merged;
    std::copy(symbols + best + 2, symbols + count, symbols + best + 1);
    if (best + 2 < count) std::copy(pairs.data() + best + 2, pairs.data() + count - 1, pairs.data() + best + 1);
    --count;
    if (best > 0) look_up(best - 1);
    if (best + 1 < count) look_up(best);
  }
  ids.resize(begin + count);
}

// Symbols in a linked list and candidates in a heap; a candidate whose pair has changed meanwhile is dropped.
void Bpe::merge_long(std::vector<TokenId>& ids, size_t begin) const {
  const auto count = static_cast<uint32_t>(ids.size() - begin);
  TokenId* symbols = ids.data() + begin;
  std::vector<uint32_t> next(count);
  std::vector<uint32_t> previous(count);
  for (uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;
  }
  std::vector<uint64_t> heap;  // rank in the upper half, position in the lower
  const auto candidate = [&](uint32_t left) {
    const Merge* merge = merges_.find(symbols[left], symbols[next[left]]);
    if (merge) heap.push_back(uint64_t{merge->rank} << 32 | left);
    return merge != nullptr;
  };
  for (uint32_t i = 0; i + 1 < count; ++i) candidate(i);
  std::ranges::make_heap(heap, std::greater{});
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, std::greater{});
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    const auto left = static_cast<uint32_t>(heap.back());
    heap.pop_back();
    if (symbols[left] == kNoToken || next[left] >= count) continue;
    const uint32_t right = next[left];
    const Merge* merge = merges_.find(symbols[left], symbols[right]);
    if (merge == nullptr || merge->rank != rank) continue;
    symbols[left] = merge->merged;
    symbols[right] = kNoToken;
    next[left] = next[right];
    if (next[left] < count) previous[next[left]] = left;
    if (left > 0 && candidate(previous[left])) std::ranges::push_heap(heap, std::greater{});
    if (next[left] < count && candidate(left)) std::ranges::push_heap(heap, std::greater{});
  }
  ids.erase(std::remove(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end(), kNoToken), ids.end());
}

}  // namespace titanium::data
