#include "titanium/data/tokenizer/pipeline.h"

#include <atomic>

#include "titanium/data/tokenizer/byte_alphabet.h"
#include "titanium/data/tokenizer/unicode.h"
#include "titanium/data/tokenizer/word_cache.h"

namespace titanium::data {
namespace {

uint64_t next_number() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

// This thread's cache for a pipeline. A thread that works with many pipelines keeps the latest few.
WordCache& cache_of(uint64_t pipeline) {
  constexpr size_t kKept = 4;
  struct Entry {
    uint64_t pipeline;
    std::unique_ptr<WordCache> cache;
  };
  thread_local std::vector<Entry> entries;
  for (Entry& entry : entries) {
    if (entry.pipeline == pipeline) return *entry.cache;
  }
  if (entries.size() == kKept) entries.erase(entries.begin());
  entries.push_back({pipeline, std::make_unique<WordCache>()});
  return *entries.back().cache;
}

}  // namespace

// Collects the ids of one text.
class Pipeline::Encoder : public WordSink {
 public:
  explicit Encoder(const Pipeline& pipeline) : pipeline_(pipeline), cache_(cache_of(pipeline.number_)) {}

  void raw_text(std::string_view text) {
    const AddedTokens& added = pipeline_.added_;
    std::vector<TextPart> parts;
    added.split(text, false, parts);
    for (const TextPart& part : parts) {
      const std::string_view piece = text.substr(part.begin, part.end - part.begin);
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else if (pipeline_.normalizer_.does_nothing()) {
        normalized_text(piece);
      } else {
        normalized_text(pipeline_.normalizer_.apply(piece));
      }
    }
  }

  void word(std::string_view word) override {
    if (word.size() > WordCache::kMaxWord) return pipeline_.model_.encode(word, ids);
    const uint64_t hash = WordCache::hash(word);
    const std::span<const TokenId> known = cache_.find(word, hash);
    if (!known.empty()) {
      ids.insert(ids.end(), known.begin(), known.end());
      return;
    }
    const size_t begin = ids.size();
    pipeline_.model_.encode(word, ids);
    const size_t count = ids.size() - begin;
    if (count > 0 && count <= WordCache::kMaxIds) cache_.insert(word, hash, std::span(ids).subspan(begin));
  }

  std::vector<TokenId> ids;

 private:
  void normalized_text(std::string_view text) {
    if (pipeline_.added_.empty(true)) return pipeline_.pre_tokenizer_.split(text, *this);
    std::vector<TextPart> parts;
    pipeline_.added_.split(text, true, parts);
    for (const TextPart& part : parts) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else {
        pipeline_.pre_tokenizer_.split(text.substr(part.begin, part.end - part.begin), *this);
      }
    }
  }

  const Pipeline& pipeline_;
  WordCache& cache_;
};

Pipeline::Pipeline(Normalizer normalizer, PreTokenizer pre_tokenizer, Bpe model, PostProcessor post_processor,
                   Decoder decoder)
    : number_(next_number()),
      normalizer_(normalizer),
      pre_tokenizer_(std::move(pre_tokenizer)),
      model_(std::move(model)),
      post_processor_(std::move(post_processor)),
      decoder_(decoder) {}

void Pipeline::add_tokens(const std::vector<AddedToken>& tokens) {
  added_.add(tokens, model_.vocabulary(), normalizer_);
}

std::vector<TokenId> Pipeline::encode(std::string_view text) const {
  const std::optional<std::string> repaired = replace_invalid_utf8(text);
  Encoder encoder(*this);
  encoder.ids.reserve(text.size() / 3 + 8);
  encoder.raw_text(repaired ? *repaired : text);
  return post_processor_.apply(std::move(encoder.ids));
}

std::string Pipeline::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  std::string text;
  bool first = true;
  for (const TokenId id : ids) {
    const std::string* token = id_to_token(id);
    if (token == nullptr || (skip_special_tokens && added_.is_special(*token))) continue;
    if (decoder_ == Decoder::kByteLevel) {
      text += from_byte_alphabet(*token).value_or(*token);
    } else {
      if (!std::exchange(first, false)) text += ' ';
      text += *token;
    }
  }
  return replace_invalid_utf8(text).value_or(text);
}

std::optional<TokenId> Pipeline::token_to_id(std::string_view token) const {
  const auto added = added_.id(token);
  return added ? added : model_.vocabulary().id(token);
}

const std::string* Pipeline::id_to_token(TokenId id) const {
  const std::string* added = added_.text(id);
  return added ? added : model_.vocabulary().token(id);
}

int64_t Pipeline::vocab_size() const {
  auto size = static_cast<int64_t>(model_.vocabulary().size());
  for (const auto& [token, id] : added_.ids()) size += !model_.vocabulary().id(token);
  return size;
}

}  // namespace titanium::data
