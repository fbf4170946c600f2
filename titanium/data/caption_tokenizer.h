// Captions to token ids of a fixed number, as the text encoders of image models take them.
#pragma once

#include "titanium/data/tokenizer.h"

namespace titanium::data {

// Immutable and thread-safe; copies share one set of tables.
class CaptionTokenizer {
 public:
  // CLIP's: BOS, the caption, EOS, then padding. A caption that is too long loses its last tokens and keeps EOS. The
  // folder has tokenizer.json, or vocab.json with merges.txt.
  static CaptionTokenizer clip(const std::filesystem::path& folder, int64_t length = 77);
  // T5's: the caption, EOS, then padding; cut likewise. The folder has tokenizer.json or spiece.model.
  static CaptionTokenizer t5(const std::filesystem::path& folder, int64_t length);
  // Any tokenizer with BOS and EOS, filled up with 0; a caption that is too long is cut, EOS with it. For tests
  // (training.test_mode), as in torchtitan.
  static CaptionTokenizer test(const std::filesystem::path& folder, int64_t length);

  // `length` ids.
  std::vector<TokenId> encode(std::string_view caption) const;

  int64_t length() const { return length_; }
  int64_t vocab_size() const { return tokenizer_.vocab_size(); }
  TokenId pad_id() const { return pad_; }

 private:
  CaptionTokenizer(Tokenizer tokenizer, int64_t length) : tokenizer_(std::move(tokenizer)), length_(length) {}
  static CaptionTokenizer published(const std::filesystem::path& folder, int64_t length, bool has_bos,
                                    const std::string& eos, const std::string& pad);

  Tokenizer tokenizer_;
  int64_t length_;
  bool add_bos_ = true;
  std::optional<TokenId> last_;  // of a caption that was cut
  TokenId pad_ = 0;
};

}  // namespace titanium::data
