#include "titanium/data/stream.h"

#include "titanium/base/error.h"

namespace titanium::data {

Stream::Stream(Corpus& corpus, const PackingOptions& options, int64_t stream, const StreamPosition& position)
    : corpus_(corpus),
      options_(options),
      stream_(stream),
      position_(position),
      pass_is_whole_(position.record == stream && position.token == 0) {
  TI_CHECK(options.seq_len >= 1, "training.seq_len = {} must be at least 1.", options.seq_len);
  TI_CHECK(position.record >= 0 && position.record % corpus.streams() == stream && position.token >= 0,
           "The saved data position of stream {} is damaged: record {}, token "
           "{}. Use another checkpoint.",
           stream, position.record, position.token);
}

std::optional<Sample> Stream::next(const std::stop_token& stop) {
  const auto wanted = static_cast<size_t>(options_.seq_len) + 1;
  Sample sample;
  sample.tokens.reserve(wanted);
  while (sample.tokens.size() < wanted) {
    if (!document_ && !open_document(stop)) return remainder(std::move(sample));
    const auto begin = static_cast<size_t>(position_.token - first_token_);
    const size_t count = std::min(wanted - sample.tokens.size(), document_->size() - begin);
    append(sample, count);
    position_.token += static_cast<int64_t>(count);
    token_seen_ |= count > 0;
    if (begin + count == document_->size()) leave_document();
  }
  keep_rest();
  ++position_.samples;
  sample.after = position_;
  return sample;
}

// The next tokens of the open document. See Note [Document starts].
void Stream::append(Sample& sample, size_t count) {
  bool starts = position_.token == 0;
  for (size_t i = 0; i < count; ++i) {
    const int32_t token = (*document_)[static_cast<size_t>(position_.token - first_token_) + i];
    if (starts && !sample.tokens.empty()) sample.document_starts.push_back(static_cast<int32_t>(sample.tokens.size()));
    sample.tokens.push_back(token);
    starts = token == options_.end_of_document;
  }
}

// False at the end of a finite stream.
bool Stream::open_document(const std::stop_token& stop) {
  auto document = corpus_.document(position_.record, position_.epoch, stop);
  while (!document) {
    if (!options_.infinite || corpus_.is_last_pass(position_.epoch)) return false;
    begin_again();
    document = corpus_.document(position_.record, position_.epoch, stop);
  }
  TI_CHECK(position_.token <= static_cast<int64_t>(document->tokens.size()),
           "The saved data position is token {} of record {}, which has only "
           "{} tokens. Use the tokenizer and the data "
           "of the saved run.",
           position_.token, position_.record, document->tokens.size());
  position_.entrance = document->entrance.value_or(position_.entrance);
  document_ = std::move(document->tokens);
  first_token_ = 0;
  return true;
}

// A mix of many sources has a document begun in each stream of each of them. What is copied is at most as much as was
// delivered.
void Stream::keep_rest() {
  if (!document_) return;
  const auto used = static_cast<size_t>(position_.token - first_token_), rest = document_->size() - used;
  if (used < rest && document_->capacity() < 2 * document_->size()) return;
  document_ = std::vector<int32_t>(document_->end() - static_cast<std::ptrdiff_t>(rest), document_->end());
  first_token_ = position_.token;
}

void Stream::leave_document() {
  document_.reset();
  position_.record += corpus_.streams();
  position_.token = 0;
}

void Stream::begin_again() {
  TI_CHECK(token_seen_ || !pass_is_whole_,
           "Dataset {}: all records of data stream {} are bad or empty, so it "
           "has no tokens to train on. Repair the "
           "data or use fewer training.data_streams{}.",
           corpus_.options().name, stream_,
           corpus_.striping().by_blocks() ? ", or set training.data_striping to \"records\"" : "");
  corpus_.note_relooped();
  position_ = {.epoch = position_.epoch + 1, .samples = position_.samples, .record = stream_};
  token_seen_ = false;
  pass_is_whole_ = true;
}

std::optional<Sample> Stream::remainder(Sample sample) const {
  if (!options_.keep_remainder || sample.tokens.size() < 2) return std::nullopt;
  sample.after = position_;
  ++sample.after.samples;
  return sample;
}

}  // namespace titanium::data
