#include "titanium/data/caption_tokenizer.h"

#include "titanium/base/error.h"

namespace titanium::data {
namespace {

TokenId id_of(const Tokenizer& tokenizer, const std::filesystem::path& folder, const std::string& token) {
  const auto id = tokenizer.token_to_id(token);
  if (!id)
    throw UsageError(
        fmt::format("tokenizer folder {} has no token {}, which captions need. Name the folder of the "
                    "right encoder.",
                    folder.string(), token));
  return *id;
}

int64_t checked(int64_t length) {
  if (length < 2) throw UsageError(fmt::format("captions of {} tokens are not possible. Use at least 2.", length));
  return length;
}

}  // namespace

CaptionTokenizer CaptionTokenizer::published(const std::filesystem::path& folder, int64_t length, bool has_bos,
                                             const std::string& eos, const std::string& pad) {
  CaptionTokenizer captions(Tokenizer::load(folder, SpecialInText::kToken, /*ignore_lengths=*/true), checked(length));
  captions.add_bos_ = has_bos;
  const Tokenizer& tokenizer = captions.tokenizer_;
  captions.last_ = tokenizer.eos_id() ? *tokenizer.eos_id() : id_of(tokenizer, folder, eos);
  captions.pad_ = tokenizer.pad_id() ? *tokenizer.pad_id() : id_of(tokenizer, folder, pad);
  return captions;
}

CaptionTokenizer CaptionTokenizer::clip(const std::filesystem::path& folder, int64_t length) {
  return published(folder, length, /*has_bos=*/true, "<|endoftext|>", "<|endoftext|>");
}

CaptionTokenizer CaptionTokenizer::t5(const std::filesystem::path& folder, int64_t length) {
  return published(folder, length, /*has_bos=*/false, "</s>", "<pad>");
}

CaptionTokenizer CaptionTokenizer::test(const std::filesystem::path& folder, int64_t length) {
  return {Tokenizer::load(folder), checked(length)};
}

std::vector<TokenId> CaptionTokenizer::encode(std::string_view caption) const {
  std::vector<TokenId> ids = tokenizer_.encode(caption, add_bos_, /*add_eos=*/true);
  const auto length = static_cast<size_t>(length_);
  if (ids.size() > length) {
    ids.resize(length);
    if (last_) ids.back() = *last_;
  }
  ids.resize(length, pad_);
  return ids;
}

}  // namespace titanium::data
