#include "titanium/data/tokenizer/model/bpe.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <set>

#include "titanium/base/error.h"
#include "titanium/base/text/printable.h"
#include "titanium/data/tokenizer/text/byte_alphabet.h"
#include "titanium/data/tokenizer/text/unicode.h"

namespace titanium::data {
namespace {

constexpr size_t kLongestWord = size_t{16} << 20;  // bytes; merging takes 28 more for each
constexpr size_t kShortWord = 96;                  // symbols up to which scanning for the best merge beats a heap
constexpr uint32_t kNoMerge = std::numeric_limits<uint32_t>::max();
constexpr TokenId kNoToken = -1;

}  // namespace

MergeTable::MergeTable(const std::vector<PairMerge>& merges) {
  slots_.assign(std::bit_ceil(std::max<size_t>(2, merges.size() * 2)), {});
  for (const PairMerge& merge : merges) {
    const uint64_t pair = key(merge.left, merge.right);
    size_t at = home(pair);
    while (slots_[at].pair != kEmpty && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {pair, merge.merge};
  }
}

bool MergeTable::joins_across(std::string_view marker, const Vocabulary& vocabulary) const {
  return std::ranges::any_of(slots_, [&](const Slot& slot) {
    if (slot.pair == kEmpty) return false;
    const auto left = vocabulary.token(static_cast<TokenId>(slot.pair >> 32));
    const auto right = vocabulary.token(static_cast<TokenId>(slot.pair & 0xFFFFFFFFu));
    return left && right && !left->ends_with(marker) && right->starts_with(marker);
  });
}

BpeTables tables_of_merges(Vocabulary vocabulary, const MergeList& merges, const BpeOptions& options) {
  const auto id_of = [&](const std::string& token) {
    const auto id = vocabulary.id(token);
    TI_CHECK(id, "a merge needs the token '{}', which is not in the vocabulary.", printable(token));
    return *id;
  };
  std::vector<PairMerge> pairs;
  pairs.reserve(merges.size());
  for (const auto& [left, right] : merges) {
    const TokenId left_id = id_of(left), right_id = id_of(right);
    pairs.push_back({left_id, right_id, {static_cast<uint32_t>(pairs.size()), id_of(left + right)}});
  }
  TokenList words;
  if (options.ignore_merges || options.whole_words) {
    for (size_t i = 0; i < vocabulary.size(); ++i) {
      const std::string token(vocabulary.token_at(i));
      if (auto word = options.byte_level ? from_byte_alphabet(token) : token)
        words.emplace_back(std::move(*word), vocabulary.id_at(i));
    }
  }
  return {.vocabulary = std::move(vocabulary), .merges = MergeTable(pairs), .words = Vocabulary(words)};
}

std::vector<PairMerge> merges_of_pieces(const std::vector<RankedPiece>& pieces) {
  TokenList list;
  list.reserve(pieces.size());
  for (const RankedPiece& piece : pieces) list.emplace_back(piece.text, piece.id);
  const Vocabulary ids(list);
  // Looking a part up takes as long as the part is, so only parts of lengths that occur are looked up.
  std::set<size_t> lengths;
  for (const RankedPiece& piece : pieces) lengths.insert(piece.text.size());
  lengths.erase(0);
  std::vector<PairMerge> merges;
  for (const RankedPiece& piece : pieces) {
    const std::string_view text = piece.text;
    for (const size_t cut : lengths) {
      if (cut >= text.size()) break;
      if (!lengths.contains(text.size() - cut)) continue;
      const auto left = ids.id(text.substr(0, cut));
      const auto right = left ? ids.id(text.substr(cut)) : std::nullopt;
      if (right) merges.push_back({*left, *right, {piece.rank, piece.id}});
    }
  }
  return merges;
}

Bpe::Bpe(BpeTables tables, BpeOptions options) : tables_(std::move(tables)), options_(std::move(options)) {
  if (options_.unk_token) unk_ = vocabulary().id(*options_.unk_token);
  for (size_t byte = 0; byte < 256; ++byte) {
    fallback_ids_[byte] =
        options_.byte_fallback ? vocabulary().id(fmt::format("<0x{:02X}>", byte)).value_or(kNoToken) : kNoToken;
    const std::string character(byte_to_character(static_cast<unsigned char>(byte)));
    const auto id_of = [&](const std::string& token) {
      return options_.byte_level ? vocabulary().id(token).value_or(kNoToken) : kNoToken;
    };
    byte_ids_[byte] = id_of(character);
    last_byte_ids_[byte] = id_of(character + options_.end_of_word_suffix);
  }
  const auto is_whole = [](const std::array<TokenId, 256>& ids) {
    return std::ranges::find(ids, kNoToken) == ids.end();
  };
  has_every_byte_ = is_whole(byte_ids_) && is_whole(last_byte_ids_);
}

bool Bpe::never_joins_across(std::string_view marker) const {
  return !options_.whole_words && !options_.ignore_merges && vocabulary().id(marker) &&
         !tables_.merges.joins_across(marker, vocabulary());
}

void Bpe::encode(std::string_view word, std::vector<TokenId>& ids) const {
  if (options_.whole_words) return encode_whole(word, ids);
  if (options_.ignore_merges) {
    if (const auto found = tables_.words.id(word)) return ids.push_back(*found);
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
  const auto found = tables_.words.id(word);
  TI_CHECK(found || unk_, "the vocabulary has neither the word '{}' nor the unknown token {}.", printable(word, 40),
           printable(options_.unk_token.value_or("[UNK]")));
  ids.push_back(found ? *found : *unk_);
}

void Bpe::append_symbols(std::string_view word, std::vector<TokenId>& symbols) const {
  if (has_every_byte_) {
    for (const char c : word) symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    if (!word.empty()) symbols.back() = last_byte_ids_[static_cast<unsigned char>(word.back())];
    return;
  }
  bool pending_unk = false;  // held back like Hugging Face does: byte tokens overtake it
  const auto flush_unk = [&] {
    if (std::exchange(pending_unk, false)) symbols.push_back(*unk_);
  };
  for (size_t at = 0, length = 1; at < word.size(); at += length) {
    if (!options_.byte_level) length = utf8_length(word[at]);
    std::string_view character =
        options_.byte_level ? byte_to_character(static_cast<unsigned char>(word[at])) : word.substr(at, length);
    std::string last;
    if (!options_.end_of_word_suffix.empty() && at + length >= word.size()) {
      last = std::string(character) + options_.end_of_word_suffix;
      character = last;
    }
    if (const auto id = vocabulary().id(character)) {
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
    const TokenId id = fallback_ids_[static_cast<unsigned char>(c)];
    if (id == kNoToken) {
      symbols.resize(begin);
      return false;
    }
    symbols.push_back(id);
  }
  return true;
}

// Keeps the rank of every neighbouring pair and looks through them for the best.
void Bpe::merge_short(std::vector<TokenId>& ids, size_t begin) const {
  size_t count = ids.size() - begin;
  TokenId* symbols = ids.data() + begin;
  std::array<Merge, kShortWord> pairs;
  const auto look_up = [&](size_t i) {
    const Merge* merge = tables_.merges.find(symbols[i], symbols[i + 1]);
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
    const Merge* merge = tables_.merges.find(symbols[left], symbols[next[left]]);
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
    const Merge* merge = tables_.merges.find(symbols[left], symbols[right]);
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
