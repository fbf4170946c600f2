#include "titanium/data/tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "titanium/data/tokenizer/text/unicode.h"

namespace titanium::data {
namespace {

constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kNumericCharacter = R"(\p{N})";
constexpr const char* kWordsAndMarks = R"(\w+|[^\w\s]+)";
constexpr const char* kPunctuation = R"([!-/:-@\[-`{-~\p{P}])";  // ASCII has more than Unicode says

}  // namespace

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
  } else if (type == "Punctuation") {
    const Json& behavior = field_or_null(json, "behavior");
    stages_.push_back(
        {.regex = Regex(oniguruma_to_pcre2(kPunctuation)),
         .behavior = behavior.is_null() ? Behavior::kIsolated : parse_behavior(text_field(json, "behavior"))});
  } else if (type == "Whitespace") {
    stages_.push_back(
        {.regex = Regex(oniguruma_to_pcre2(kWordsAndMarks)), .behavior = Behavior::kRemoved, .invert = true});
  } else if (type == "WhitespaceSplit") {
    stages_.push_back({.regex = Regex(oniguruma_to_pcre2(R"(\s)")), .behavior = Behavior::kRemoved});
  } else if (type == "Metaspace") {
    stages_.push_back(parse_metaspace(json));
  } else if (type == "ByteLevel") {
    byte_level_ = true;
    Stage stage{.prefix_space = flag(json, "add_prefix_space", true)};
    if (flag(json, "use_regex", true)) stage.regex = Regex(oniguruma_to_pcre2(kGpt2Pattern));
    if (stage.regex || stage.prefix_space) stages_.push_back(std::move(stage));
  } else {
    refuse_type("pre_tokenizer", type,
                "Split, Digits, Punctuation, Whitespace, WhitespaceSplit, Metaspace, ByteLevel, Sequence");
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
  Stage stage{.regex = parse_pattern(pattern),
              .behavior = parse_behavior(text_field(json, "behavior")),
              .invert = flag(json, "invert", false)};
  const Json& regex = field_or_null(pattern, "Regex");
  const bool keeps_all = stage.behavior == Behavior::kIsolated ||
                         (stage.behavior == Behavior::kRemoved && stage.invert);  // there is nothing between matches
  if (regex.is_string() && keeps_all) stage.scanner = WordScanner::for_pattern(regex.get_ref<const std::string&>());
  return stage;
}

PreTokenizer::Stage PreTokenizer::parse_metaspace(const Json& json) {
  Stage stage{.space_mark = text_field(json, "replacement")};
  // Files of older versions say add_prefix_space instead.
  const Json& scheme = field_or_null(json, "prepend_scheme");
  const std::string name = !scheme.is_null()                      ? text_field(json, "prepend_scheme")
                           : flag(json, "add_prefix_space", true) ? "always"
                                                                  : "never";
  TI_CHECK(name == "always" || name == "first" || name == "never",
           "Metaspace prepend_scheme {} is unknown. Known are: always, first, never.", printable(name));
  stage.prepend = name == "always" ? Prepend::kAlways : name == "first" ? Prepend::kFirst : Prepend::kNever;
  if (!flag(json, "split", true)) return stage;
  stage.regex = Regex(escape_for_pcre2(stage.space_mark));
  stage.behavior = Behavior::kMergedWithNext;
  return stage;
}

void PreTokenizer::cut_before(std::string_view mark) { stages_.push_back({.cut_mark = std::string(mark)}); }

void PreTokenizer::replace_spaces(const Stage& stage, bool is_first, std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == ' ') {
      out += stage.space_mark;
    } else {
      out += c;
    }
  }
  const bool wanted = stage.prepend == Prepend::kAlways || (stage.prepend == Prepend::kFirst && is_first);
  text = wanted && !out.starts_with(stage.space_mark) ? stage.space_mark + out : std::move(out);
}

void PreTokenizer::run(size_t index, std::string_view text, bool is_first, WordSink& sink) const {
  if (text.empty()) return;
  if (index == stages_.size()) return sink.word(text);
  const Stage& stage = stages_[index];
  std::string changed;
  if (stage.prefix_space && text.front() != ' ') text = changed.append(" ").append(text);
  if (!stage.space_mark.empty()) {
    changed = text;
    replace_spaces(stage, is_first, changed);
    text = changed;
  }
  const auto pass_on = [&](size_t begin, size_t end) {
    run(index + 1, text.substr(begin, end - begin), is_first && begin == 0, sink);
  };
  if (stage.scanner) {
    for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
      end = stage.scanner->word_end(text, begin);
      pass_on(begin, end);
    }
  } else if (!stage.cut_mark.empty()) {
    const std::string_view mark = stage.cut_mark;
    size_t begin = 0;
    for (size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark, at + mark.size())) {
      if (at == 0 || text.substr(0, at).ends_with(mark)) continue;
      pass_on(begin, at);
      begin = at;
    }
    pass_on(begin, text.size());
  } else if (!stage.regex) {
    pass_on(0, text.size());
  } else if (stage.behavior == Behavior::kIsolated || stage.behavior == Behavior::kRemoved) {
    for_each_segment(stage, text, [&](const Segment& s) {
      if (stage.behavior == Behavior::kIsolated || !s.is_match) pass_on(s.begin, s.end);
    });
  } else {
    for (const Segment& s : merge_segments(stage, text)) pass_on(s.begin, s.end);
  }
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

// The segments after merging. "With next" is "with previous" read from right to left.
std::vector<PreTokenizer::Segment> PreTokenizer::merge_segments(const Stage& stage, std::string_view text) {
  std::vector<Segment> segments;
  for_each_segment(stage, text, [&](const Segment& segment) { segments.push_back(segment); });
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
