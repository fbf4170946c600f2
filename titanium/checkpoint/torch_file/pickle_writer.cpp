#include "titanium/checkpoint/torch_file/pickle_writer.h"

#include <bit>
#include <limits>
#include <unordered_map>

#include "titanium/base/error.h"

namespace titanium::checkpoint {
namespace {

class PickleOutput {
 public:
  std::string write(const PickleValue& value) && {
    out_ = "\x80\x02";
    put(value);
    out_ += '.';
    return std::move(out_);
  }

 private:
  using Kind = PickleValue::Kind;

  void put(const PickleValue& value) {
    switch (value.kind()) {
      case Kind::kNone:
        out_ += 'N';
        return;
      case Kind::kBoolean:
        out_ += value.as_bool() ? '\x88' : '\x89';
        return;
      case Kind::kInteger:
        return put_integer(value.as_int());
      case Kind::kReal:
        return put_real(value.as_real());
      case Kind::kString:
        return put_string(value.as_string());
      case Kind::kBytes:
        return put_bytes(value.as_bytes());
      case Kind::kList:
        return put_sequence(']', 'e', value.items());
      case Kind::kDict:
        return put_sequence('}', 'u', value.items());
      case Kind::kTuple:
        return put_tuple(value.items());
      case Kind::kGlobal:
        return put_global(value.type_name());
      case Kind::kObject:
        return put_object(value);
      case Kind::kPersistentId:
        put(value.items().front());
        out_ += 'Q';
        return;
    }
  }

  template <typename T>
  void raw(T value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  void put_integer(int64_t value) {
    if (value >= 0 && value < 256) {
      out_ += {'K', static_cast<char>(value)};
    } else if (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max()) {
      out_ += 'J';
      raw(static_cast<int32_t>(value));
    } else {
      out_ += {'\x8a', 8};
      raw(value);
    }
  }

  void put_real(double value) {
    out_ += 'G';
    raw(__builtin_bswap64(std::bit_cast<uint64_t>(value)));
  }

  // Writes what was written before as a reference. Returns whether that was so.
  bool recalled(const std::string& key) {
    const auto [found, first] = memo_.try_emplace(key, static_cast<uint32_t>(memo_.size()));
    if (first) return false;
    if (found->second < 256) {
      out_ += {'h', static_cast<char>(found->second)};
    } else {
      out_ += 'j';
      raw(found->second);
    }
    return true;
  }

  // After a new entry of the memo was written.
  void remember() {
    const auto index = static_cast<uint32_t>(memo_.size() - 1);
    if (index < 256) {
      out_ += {'q', static_cast<char>(index)};
    } else {
      out_ += 'r';
      raw(index);
    }
  }

  void put_text(const std::string& text) {
    TI_CHECK(text.size() <= std::numeric_limits<uint32_t>::max(),
             "a text of {} bytes does not fit into a pickle of protocol 2. Store it as a tensor.", text.size());
    out_ += 'X';
    raw(static_cast<uint32_t>(text.size()));
    out_ += text;
  }

  void put_string(const std::string& text) {
    if (recalled("s" + text)) return;
    put_text(text);
    remember();
  }

  // Protocol 2 has no bytes; Python itself spells them as the characters 0 to 255 of a text, encoded.
  void put_bytes(const std::string& content) {
    std::string text;
    for (const char c : content) {
      const auto code = static_cast<unsigned char>(c);
      if (code < 0x80) {
        text += c;
      } else {
        text += {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
      }
    }
    put_global("_codecs.encode");
    put_text(text);
    put_string("latin1");
    out_ += "\x86R";
  }

  void put_sequence(char empty, char extend, std::span<const PickleValue> items) {
    out_ += empty;
    if (items.empty()) return;
    out_ += '(';
    for (const PickleValue& item : items) put(item);
    out_ += extend;
  }

  void put_tuple(std::span<const PickleValue> items) {
    if (items.empty()) {
      out_ += ')';
      return;
    }
    const bool is_short = items.size() <= 3;
    if (!is_short) out_ += '(';
    for (const PickleValue& item : items) put(item);
    out_ += is_short ? static_cast<char>(0x84 + items.size()) : 't';
  }

  void put_global(std::string_view type_name) {
    const std::string name(type_name);
    if (recalled("c" + name)) return;
    const size_t dot = name.rfind('.');
    out_ += fmt::format("c{}\n{}\n", name.substr(0, dot), name.substr(dot + 1));
    remember();
  }

  void put_object(const PickleValue& value) {
    put_global(value.type_name());
    put_tuple(value.items());
    out_ += value.is_call() ? 'R' : '\x81';
    if (value.state().is_none()) return;
    put(value.state());
    out_ += 'b';
  }

  std::string out_;
  std::unordered_map<std::string, uint32_t> memo_;
};

}  // namespace

std::string write_pickle(const PickleValue& value) { return PickleOutput().write(value); }

}  // namespace titanium::checkpoint
