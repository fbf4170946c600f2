#include "titanium/data/tokenizer/normalizer.h"

#include "titanium/base/text/base64.h"
#include "titanium/data/tokenizer/sentencepiece_normalizer.h"
#include "titanium/data/tokenizer/text/charsmap.h"
#include "titanium/data/tokenizer/text/regex.h"
#include "titanium/data/tokenizer/text/unicode.h"

namespace titanium::data {
namespace {

// One of the functions of unicode.h.
class Mapping : public NormalizerStep {
 public:
  explicit Mapping(std::string (*map)(std::string_view)) : map_(map) {}
  std::string apply(std::string_view text) const override { return map_(text); }

 private:
  std::string (*map_)(std::string_view);
};

class Prepend : public NormalizerStep {
 public:
  explicit Prepend(std::string front) : front_(std::move(front)) {}
  std::string apply(std::string_view text) const override {
    return text.empty() ? std::string() : front_ + std::string(text);
  }

 private:
  std::string front_;
};

class Replace : public NormalizerStep {
 public:
  Replace(Regex pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::string apply(std::string_view text) const override { return replace_all(pattern_, text, content_); }

 private:
  Regex pattern_;
  std::string content_;
};

class Strip : public NormalizerStep {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  std::string apply(std::string_view text) const override {
    while (left_ && !text.empty() && is_white_space(first_code_point(text))) text.remove_prefix(utf8_length(text[0]));
    while (right_ && !text.empty()) {
      const size_t last = begin_of_last_character(text);
      if (!is_white_space(first_code_point(text.substr(last)))) break;
      text = text.substr(0, last);
    }
    return std::string(text);
  }

 private:
  bool left_;
  bool right_;
};

// The compiled rules of a SentencePiece model, without what SentencePiece does to white space.
class Precompiled : public NormalizerStep {
 public:
  explicit Precompiled(const Json& json) {
    const auto compiled = from_base64(text_field(json, "precompiled_charsmap"));
    TI_CHECK(compiled, "the normalizer's \"precompiled_charsmap\" is not base64.");
    rules_ = Charsmap(*compiled);
  }
  std::string apply(std::string_view text) const override {
    std::string out;
    while (!text.empty()) {
      const auto [replacement, bytes] = rules_.replace_prefix(text);
      const size_t length = bytes > 0 ? bytes : utf8_length(text[0]);
      out += bytes > 0 ? replacement : text.substr(0, length);
      text.remove_prefix(length);
    }
    return out;
  }

 private:
  Charsmap rules_;
};

std::shared_ptr<const NormalizerStep> make_step(const Json& json, const std::string& type) {
  using Map = std::pair<const char*, std::string (*)(std::string_view)>;
  for (const auto& [name, map] : {Map{"NFC", to_nfc}, Map{"NFD", to_nfd}, Map{"NFKC", to_nfkc}, Map{"NFKD", to_nfkd},
                                  Map{"Lowercase", to_lower}}) {
    if (type == name) return std::make_shared<Mapping>(map);
  }
  if (type == "Prepend") return std::make_shared<Prepend>(text_field(json, "prepend"));
  if (type == "Replace") {
    return std::make_shared<Replace>(parse_pattern(field_or_null(json, "pattern")), text_field(json, "content"));
  }
  if (type == "Strip") {
    return std::make_shared<Strip>(flag(json, "strip_left", true), flag(json, "strip_right", true));
  }
  if (type == "Precompiled") return std::make_shared<Precompiled>(json);
  if (type == "SentencePiece") return std::make_shared<SentencePieceNormalizer>(json);
  refuse_type("normalizer", type, "NFC, NFD, NFKC, NFKD, Lowercase, Precompiled, Prepend, Replace, Strip, Sequence");
}

}  // namespace

Normalizer Normalizer::from_json(const Json& json) {
  Normalizer result;
  if (!json.is_null()) result.append(json);
  return result;
}

void Normalizer::append(const Json& json) {
  const std::string& type = type_of(json, "normalizer");
  if (type == "Sequence") {
    for (const Json& part : list_field(json, "normalizers")) append(part);
  } else {
    steps_.push_back(make_step(json, type));
  }
}

std::string Normalizer::apply(std::string_view text) const {
  std::string result(text);
  for (const auto& step : steps_) result = step->apply(result);
  return result;
}

}  // namespace titanium::data
