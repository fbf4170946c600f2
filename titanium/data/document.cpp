#include "titanium/data/document.h"

#include <fmt/ranges.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "titanium/base/text/printable.h"
#include "titanium/data/quick_json.h"

namespace titanium::data {
namespace {

// The careful way, which has the last word and says what is wrong.
class FieldPicker : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit FieldPicker(const std::string& field) : field_(field) {}

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("a boolean"); }
  bool number_integer(number_integer_t) override { return value("a number"); }
  bool number_unsigned(number_unsigned_t) override { return value("a number"); }
  bool number_float(number_float_t, const string_t&) override { return value("a number"); }
  bool binary(binary_t&) override { return value("binary data"); }
  bool string(string_t& text) override {
    if (at_field()) text_ = std::move(text);
    return value("a string");
  }
  bool start_object(size_t) override { return open("an object"); }
  bool start_array(size_t) override { return open("an array"); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (depth_ == 1) {
      key_ = name;
      if (names_.size() < kNamesToShow) names_.push_back(printable(name, kNameBytesToShow));
    }
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    problem_ = fmt::format("this record is not valid JSON (at byte {})", position);
    return false;
  }

  // What is wrong with the record that was parsed; empty if nothing.
  std::string problem() const {
    if (!problem_.empty()) return problem_;
    if (outermost_ != "an object") return fmt::format("this record is {}, but must be a JSON object", outermost_);
    if (kind_.empty())
      return fmt::format("this record has no field \"{}\" (its fields: {})", field_,
                         names_.empty() ? "none" : fmt::format("{}", fmt::join(names_, ", ")));
    if (kind_ != "a string") return fmt::format("field \"{}\" is {}, but must be a string", field_, kind_);
    return "";
  }

  std::string take_text() { return std::move(text_); }

 private:
  static constexpr size_t kNamesToShow = 8;
  static constexpr size_t kNameBytesToShow = 40;

  bool at_field() const { return depth_ == 1 && outermost_ == "an object" && key_ == field_; }
  bool value(std::string_view kind) {
    if (depth_ == 0) outermost_ = kind;
    if (at_field()) kind_ = kind;  // as in Python, the last of several fields of one name counts
    return true;
  }
  bool open(std::string_view kind) {
    value(kind);
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }

  const std::string& field_;
  int64_t depth_ = 0;
  std::string key_;
  std::string_view outermost_;
  std::string_view kind_;
  std::string text_;
  std::string problem_;
  std::vector<std::string> names_;
};

[[noreturn]] void refuse(const Record& record, const std::string& problem) {
  throw BadRecord(
      fmt::format("{}: {}. Repair or remove the {}, or set training.skip_bad_records to leave such records out.",
                  record.place(), problem, record.block->content == Content::kJson ? "line" : "record"));
}

template <typename T>
std::vector<int32_t> tokens_of(const Record& record) {
  std::vector<T> numbers(record.bytes.size() / sizeof(T));
  record.bytes.copy(reinterpret_cast<char*>(numbers.data()), numbers.size() * sizeof(T));
  std::vector<int32_t> tokens(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    if constexpr (sizeof(T) > 2) {
      if (numbers[i] > static_cast<T>(std::numeric_limits<int32_t>::max()))
        refuse(record, fmt::format("token {} of this record is {}, which is no token id", i,
                                   static_cast<std::make_signed_t<T>>(numbers[i])));
    }
    tokens[i] = static_cast<int32_t>(numbers[i]);
  }
  return tokens;
}

}  // namespace

bool has_tokens(const Record& record) { return record.block->content == Content::kTokens; }

std::string_view document_text(const Record& record, const std::string& field, std::string& storage) {
  if (record.missing) refuse(record, fmt::format("\"{}\" is null here", field));
  TI_ASSERT(!has_tokens(record));
  if (record.block->content == Content::kText) {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    return record.bytes.starts_with(kByteOrderMark) ? record.bytes.substr(kByteOrderMark.size()) : record.bytes;
  }
  if (quick_text(record.bytes, field, storage)) return storage;
  FieldPicker picker(field);
  nlohmann::json::sax_parse(record.bytes, &picker);
  const std::string problem = picker.problem();
  if (!problem.empty()) refuse(record, problem);
  storage = picker.take_text();
  return storage;
}

std::string document_text(const Record& record, const std::string& field) {
  std::string storage;
  const std::string_view text = document_text(record, field, storage);
  return text.data() == storage.data() ? std::move(storage) : std::string(text);
}

std::vector<int32_t> document_tokens(const Record& record) {
  if (record.missing) refuse(record, "the tokens are null here");
  switch (record.block->token_bytes) {
    case 2:
      return tokens_of<uint16_t>(record);
    case 4:
      return tokens_of<uint32_t>(record);
    default:
      return tokens_of<uint64_t>(record);
  }
}

}  // namespace titanium::data
