#include "titanium/data/tokenizer/decoder.h"

#include <charconv>

#include "titanium/data/tokenizer/text/byte_alphabet.h"
#include "titanium/data/tokenizer/text/regex.h"
#include "titanium/data/tokenizer/text/unicode.h"

namespace titanium::data {
namespace {

std::string joined(const std::vector<std::string>& tokens) { return fmt::format("{}", fmt::join(tokens, "")); }

class ByteLevel : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      if (auto bytes = from_byte_alphabet(token)) token = std::move(*bytes);
    }
    const std::string text = joined(tokens);
    tokens = {replace_invalid_utf8(text).value_or(text)};
  }
};

// Neighbouring tokens <0x..> become the text that their bytes spell, or one U+FFFD each.
class ByteFallback : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> result;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (!replace_invalid_utf8(bytes)) {
        result.push_back(bytes);
      } else {
        result.insert(result.end(), bytes.size(), "\xEF\xBF\xBD");
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const auto byte = byte_of(token)) {
        bytes += *byte;
        continue;
      }
      flush();
      result.push_back(std::move(token));
    }
    flush();
    tokens = std::move(result);
  }

 private:
  static std::optional<char> byte_of(const std::string& token) {
    if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
    unsigned value = 0;
    const auto parsed = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
    if (parsed.ptr != token.data() + 5) return std::nullopt;
    return static_cast<char>(value);
  }
};

class Fuse : public DecoderStep {
 public:
  void apply(std::vector<std::string>& tokens) const override { tokens = {joined(tokens)}; }
};

class ReplaceText : public DecoderStep {
 public:
  ReplaceText(Regex pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) token = replace_all(pattern_, token, content_);
  }

 private:
  Regex pattern_;
  std::string content_;
};

// Takes up to so many times `content` from the begin and the end of every token.
class StripText : public DecoderStep {
 public:
  StripText(std::string content, int64_t start, int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      for (int64_t i = 0; i < start_ && token.starts_with(content_); ++i) token.erase(0, content_.size());
      for (int64_t i = 0; i < stop_ && token.ends_with(content_); ++i) token.resize(token.size() - content_.size());
    }
  }

 private:
  std::string content_;
  int64_t start_;
  int64_t stop_;
};

// Marks become spaces; the one that was put in front of the text goes.
class MetaspaceText : public DecoderStep {
 public:
  MetaspaceText(std::string mark, bool prepended) : mark_(std::move(mark)), prepended_(prepended) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const std::string token = std::exchange(tokens[i], {});
      for (size_t at = 0; at < token.size();) {
        if (!token.substr(at).starts_with(mark_)) {
          tokens[i] += token[at++];
          continue;
        }
        at += mark_.size();
        if (i > 0 || !prepended_) tokens[i] += ' ';
      }
    }
  }

 private:
  std::string mark_;
  bool prepended_;
};

int64_t count_field(const Json& json, const char* key) {
  const Json& value = field_or_null(json, key);
  TI_CHECK(value.is_number_integer() && value >= 0, "\"{}\" is {}, expected a whole number from 0.", key, shown(value));
  return value.get<int64_t>();
}

std::shared_ptr<const DecoderStep> make_step(const Json& json, const std::string& type) {
  if (type == "ByteLevel") return std::make_shared<ByteLevel>();
  if (type == "ByteFallback") return std::make_shared<ByteFallback>();
  if (type == "Fuse") return std::make_shared<Fuse>();
  if (type == "Replace") {
    return std::make_shared<ReplaceText>(parse_pattern(field_or_null(json, "pattern")), text_field(json, "content"));
  }
  if (type == "Strip") {
    return std::make_shared<StripText>(text_field(json, "content"), count_field(json, "start"),
                                       count_field(json, "stop"));
  }
  if (type == "Metaspace") {
    const Json& scheme = field_or_null(json, "prepend_scheme");
    const bool prepended = scheme.is_null() ? flag(json, "add_prefix_space", true) : scheme != "never";
    return std::make_shared<MetaspaceText>(text_field(json, "replacement"), prepended);
  }
  refuse_type("decoder", type, "ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, Sequence");
}

}  // namespace

Decoder Decoder::from_json(const Json& json) {
  Decoder result;
  if (!json.is_null()) result.append(json);
  return result;
}

void Decoder::append(const Json& json) {
  given_ = true;
  const std::string& type = type_of(json, "decoder");
  if (type == "Sequence") {
    for (const Json& part : list_field(json, "decoders")) append(part);
  } else {
    steps_.push_back(make_step(json, type));
  }
}

std::string Decoder::decode(std::vector<std::string> tokens) const {
  for (const auto& step : steps_) step->apply(tokens);
  std::string text = given_ ? joined(tokens) : fmt::format("{}", fmt::join(tokens, " "));
  return replace_invalid_utf8(text).value_or(std::move(text));
}

}  // namespace titanium::data
