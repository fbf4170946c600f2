#include "titanium/data/tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "titanium/data/tokenizer/unicode.h"

namespace titanium::data {
namespace {

constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kNumericCharacter = R"(\p{N})";

}  // namespace

Normalizer Normalizer::from_json(const Json& json) {
  Normalizer result;
  if (json.is_null()) return result;
  const std::string& type = type_of(json, "normalizer");
  if (type == "NFC") {
    result.nfc_ = true;
  } else if (type == "Sequence") {
    for (const Json& part : list_field(json, "normalizers")) result.nfc_ |= from_json(part).nfc_;
  } else {
    refuse_type("normalizer", type, "NFC, Sequence");
  }
  return result;
}

std::string Normalizer::apply(std::string_view text) const { return nfc_ ? to_nfc(text) : std::string(text); }

PreTokenizer PreTokenizer::from_json(const Json& json) {
  PreTokenizer result;
  if (!json.is_null()) result.append(json);
  return result;
}

void PreTokenizer::append(const Json& json) {
  const std::string& type = type_of(json, "pre_tokenizer");
  if (type == "Sequence") {
    for (const Json& part : list_field(json, "pretokenizers")) append(part);
    return;
  }
  TI_CHECK(!byte_level_, "pre_tokenizer {} stands after ByteLevel, which must come last.", printable(type));
  if (type == "Split") {
    stages_.push_back(parse_split(json));
  } else if (type == "Digits") {
    const bool individual = flag(json, "individual_digits", false);
    stages_.push_back({.regex = Regex(oniguruma_to_pcre2(kNumericCharacter)),
                       .behavior = individual ? Behavior::kIsolated : Behavior::kContiguous});
  } else if (type == "ByteLevel") {
    byte_level_ = true;
    Stage stage{.prefix_space = flag(json, "add_prefix_space", true)};
    if (flag(json, "use_regex", true)) stage.regex = Regex(oniguruma_to_pcre2(kGpt2Pattern));
    if (stage.regex || stage.prefix_space) stages_.push_back(std::move(stage));
  } else {
    refuse_type("pre_tokenizer", type, "Split, Digits, ByteLevel, Sequence");
  }
}

PreTokenizer::Behavior PreTokenizer::parse_behavior(const std::string& name) {
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Contiguous") return Behavior::kContiguous;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  throw Error(
      fmt::format("Split behavior {} is unknown. Known are: Isolated, Removed, Contiguous, MergedWithPrevious, "
                  "MergedWithNext.",
                  printable(name)));
}

PreTokenizer::Stage PreTokenizer::parse_split(const Json& json) {
  const Json& pattern = field_or_null(json, "pattern");
  const bool is_regex = !field_or_null(pattern, "Regex").is_null();
  return {.regex = Regex(is_regex ? oniguruma_to_pcre2(text_field(pattern, "Regex"))
                                  : escape_for_pcre2(text_field(pattern, "String"))),
          .behavior = parse_behavior(text_field(json, "behavior")),
          .invert = flag(json, "invert", false)};
}

void PreTokenizer::run(size_t index, std::string_view text, WordSink& sink) const {
  if (text.empty()) return;
  if (index == stages_.size()) return sink.word(text);
  const Stage& stage = stages_[index];
  std::string with_space;
  if (stage.prefix_space && text.front() != ' ') text = with_space.append(" ").append(text);
  if (!stage.regex) return run(index + 1, text, sink);
  if (stage.behavior == Behavior::kIsolated) {
    for_each_segment(stage, text,
                     [&](const Segment& s) { run(index + 1, text.substr(s.begin, s.end - s.begin), sink); });
    return;
  }
  for (const Segment& s : merge_segments(stage, text)) run(index + 1, text.substr(s.begin, s.end - s.begin), sink);
}

// Matches and the gaps between them, in order. An empty match right after a match does not count, as in Oniguruma's
// iterator.
template <typename Visit>
void PreTokenizer::for_each_segment(const Stage& stage, std::string_view text, const Visit& visit) {
  size_t done = 0;
  std::optional<size_t> last_end;
  Regex::Match match;
  Regex::Effort effort;
  for (size_t from = 0; from <= text.size() && stage.regex->find(text, from, match, effort);) {
    if (match.begin == match.end && last_end == match.end) {
      from += from < text.size() ? utf8_length(text[from]) : 1;
      continue;
    }
    if (done < match.begin) visit(Segment{done, match.begin, stage.invert});
    visit(Segment{match.begin, match.end, !stage.invert});
    done = from = match.end;
    last_end = match.end;
  }
  if (done < text.size()) visit(Segment{done, text.size(), stage.invert});
}

// The segments after removal or merging. "With next" is "with previous" read from right to left.
std::vector<PreTokenizer::Segment> PreTokenizer::merge_segments(const Stage& stage, std::string_view text) {
  std::vector<Segment> segments;
  for_each_segment(stage, text, [&](const Segment& segment) { segments.push_back(segment); });
  if (stage.behavior == Behavior::kRemoved) {
    std::erase_if(segments, [](const Segment& segment) { return segment.is_match; });
    return segments;
  }
  const bool backwards = stage.behavior == Behavior::kMergedWithNext;
  if (backwards) std::reverse(segments.begin(), segments.end());
  std::vector<Segment> merged;
  bool previous_match = false;
  for (const Segment& segment : segments) {
    const bool joins = stage.behavior == Behavior::kContiguous ? segment.is_match == previous_match
                                                               : segment.is_match && !previous_match;
    if (joins && !merged.empty()) {
      merged.back().begin = std::min(merged.back().begin, segment.begin);
      merged.back().end = std::max(merged.back().end, segment.end);
    } else {
      merged.push_back(segment);
    }
    previous_match = segment.is_match;
  }
  if (backwards) std::reverse(merged.begin(), merged.end());
  return merged;
}

}  // namespace titanium::data
