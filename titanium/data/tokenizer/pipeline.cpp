#include "titanium/data/tokenizer/pipeline.h"

#include <atomic>

#include "titanium/data/tokenizer/model/word_cache.h"
#include "titanium/data/tokenizer/text/byte_hash.h"
#include "titanium/data/tokenizer/text/unicode.h"

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
  Encoder(const Pipeline& pipeline, SpecialInText special)
      : pipeline_(pipeline), special_(special), cache_(cache_of(pipeline.number_)) {}

  void raw_text(std::string_view text) {
    const AddedTokens& added = pipeline_.added_;
    std::vector<TextPart> parts;
    added.split(text, false, special_, parts);
    for (const TextPart& part : parts) {
      const std::string_view piece = text.substr(part.begin, part.end - part.begin);
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else if (pipeline_.normalizer_.does_nothing()) {
        normalized_text(piece, part.begin == 0);
      } else {
        normalized_text(pipeline_.normalizer_.apply(piece), part.begin == 0);
      }
    }
  }

  void word(std::string_view word) override {
    if (word.size() > WordCache::kMaxWord) return pipeline_.model_->encode(word, ids);
    const uint64_t hash = hash_bytes(word);
    const std::span<const TokenId> known = cache_.find(word, hash);
    if (!known.empty()) {
      ids.insert(ids.end(), known.begin(), known.end());
      return;
    }
    const size_t begin = ids.size();
    pipeline_.model_->encode(word, ids);
    const size_t count = ids.size() - begin;
    if (count > 0 && count <= WordCache::kMaxIds) cache_.insert(word, hash, std::span(ids).subspan(begin));
  }

  std::vector<TokenId> ids;

 private:
  void normalized_text(std::string_view text, bool is_first) {
    if (pipeline_.added_.empty(true)) return pipeline_.pre_tokenizer_.split(text, *this, is_first);
    std::vector<TextPart> parts;
    pipeline_.added_.split(text, true, special_, parts);
    for (const TextPart& part : parts) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else {
        const std::string_view piece = text.substr(part.begin, part.end - part.begin);
        pipeline_.pre_tokenizer_.split(piece, *this, is_first && part.begin == 0);
      }
    }
  }

  const Pipeline& pipeline_;
  SpecialInText special_;
  WordCache& cache_;
};

Pipeline::Pipeline(Normalizer normalizer, PreTokenizer pre_tokenizer, std::unique_ptr<const Model> model,
                   PostProcessor post_processor, Decoder decoder)
    : number_(next_number()),
      normalizer_(std::move(normalizer)),
      pre_tokenizer_(std::move(pre_tokenizer)),
      model_(std::move(model)),
      post_processor_(std::move(post_processor)),
      decoder_(std::move(decoder)) {}

void Pipeline::add_tokens(const std::vector<AddedToken>& tokens) {
  added_.add(tokens, model_->vocabulary(), normalizer_);
}

std::vector<TokenId> Pipeline::encode(std::string_view text, SpecialInText special) const {
  const std::optional<std::string> repaired = replace_invalid_utf8(text);
  Encoder encoder(*this, special);
  encoder.ids.reserve(text.size() / 3 + 8);
  encoder.raw_text(repaired ? *repaired : text);
  return post_processor_.apply(std::move(encoder.ids));
}

std::string Pipeline::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  for (const TokenId id : ids) {
    const auto token = id_to_token(id);
    if (token && !(skip_special_tokens && added_.is_special(*token))) tokens.emplace_back(*token);
  }
  return decoder_.decode(std::move(tokens));
}

std::optional<TokenId> Pipeline::token_to_id(std::string_view token) const {
  const auto added = added_.id(token);
  return added ? added : model_->vocabulary().id(token);
}

std::optional<std::string_view> Pipeline::id_to_token(TokenId id) const {
  if (const std::string* added = added_.text(id)) return *added;
  return model_->vocabulary().token(id);
}

int64_t Pipeline::vocab_size() const {
  auto size = static_cast<int64_t>(model_->vocabulary().size());
  for (const auto& [token, id] : added_.ids()) size += !model_->vocabulary().id(token);
  return size;
}

}  // namespace titanium::data
