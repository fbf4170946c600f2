#include "titanium/data/quick_json.h"

// It loads whole aligned words, which may reach beyond the end but into no other page. The sanitizers of addresses and
// of threads do not allow that.
#if defined(__SSE2__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define RAPIDJSON_SSE2
#endif
#include <rapidjson/reader.h>

#include <cstdint>

#include "titanium/base/text/utf8.h"

namespace titanium::data {
namespace {

constexpr size_t kMostKept = size_t{4} << 20;  // bytes that a thread keeps between records

// Picks one string out of a JSON object while it is parsed, so that nothing else of the record is ever built. This is
// the quick way, with RapidJSON: it knows whether a record is good, not what is wrong with it.
class TextPicker : public rapidjson::BaseReaderHandler<rapidjson::UTF8<>, TextPicker> {
 public:
  TextPicker(std::string_view field, std::string& text) : field_(field), text_(text) {}

  bool Default() { return value(); }
  bool String(const char* text, rapidjson::SizeType size, bool) {
    if (!at_field_) return true;
    text_.assign(text, size);
    at_field_ = false;
    has_text_ = true;  // as in Python, the last of several fields of one name counts
    return true;
  }
  bool Key(const char* name, rapidjson::SizeType size, bool) {
    at_field_ = depth_ == 1 && std::string_view(name, size) == field_;
    return true;
  }
  bool StartObject() {
    is_object_ |= depth_ == 0;
    return open();
  }
  bool StartArray() { return open(); }
  bool EndObject(rapidjson::SizeType) { return --depth_ >= 0; }
  bool EndArray(rapidjson::SizeType) { return --depth_ >= 0; }

  bool has_text() const { return is_object_ && has_text_; }

 private:
  bool value() {
    if (at_field_) has_text_ = false;
    at_field_ = false;
    return true;
  }
  bool open() {
    value();
    ++depth_;
    return true;
  }

  std::string_view field_;
  int64_t depth_ = 0;
  bool is_object_ = false;
  bool at_field_ = false;
  bool has_text_ = false;
  std::string& text_;
};

// RapidJSON refuses the first half of a surrogate pair (\ud800 to \udbff) that stands alone, and lets the second half
// (\udc00 to \udfff) pass.
bool has_lone_second_surrogate(std::string_view bytes) {
  constexpr size_t kEscape = 6;  // bytes of backslash, u and four digits
  for (size_t at = bytes.find('\\'); at < bytes.size();) {
    if (bytes[at] != '\\') {
      at = bytes.find('\\', at);
      continue;
    }
    if (at + kEscape > bytes.size() || bytes[at + 1] != 'u') {
      at += 2;  // of two backslashes the second one begins no escape
      continue;
    }
    const char second = static_cast<char>(bytes[at + 3] | 0x20);
    const bool surrogate = (bytes[at + 2] | 0x20) == 'd' && bytes[at + 3] >= '8';
    if (surrogate && second >= 'c' && second <= 'f') return true;
    at += surrogate ? 2 * kEscape : kEscape;  // RapidJSON looks at what follows a first half
  }
  return false;
}

}  // namespace

bool quick_text(std::string_view record, std::string_view field, std::string& text) {
  if (!is_utf8(record) || has_lone_second_surrogate(record)) return false;
  thread_local rapidjson::Reader reader;
  thread_local std::string bytes;  // in which escapes are replaced: quicker than to copy each text
  bytes.assign(record);
  TextPicker picker(field, text);
  rapidjson::InsituStringStream stream(bytes.data());  // the parser ends at the zero byte
  constexpr unsigned kFlags = rapidjson::kParseIterativeFlag | rapidjson::kParseInsituFlag;
  const bool parsed = !reader.Parse<kFlags>(stream, picker).IsError();
  if (bytes.capacity() > kMostKept) std::string().swap(bytes);
  return parsed && stream.Tell() == record.size() && picker.has_text();
}

}  // namespace titanium::data
