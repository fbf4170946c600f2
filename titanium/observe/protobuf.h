// Writes the wire format of protocol buffers, for the few messages of other programs' files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace titanium::observe {

class ProtobufMessage {
 public:
  ProtobufMessage& integer(int field, int64_t value);
  ProtobufMessage& number(int field, double value);
  ProtobufMessage& float32(int field, float value);
  ProtobufMessage& text(int field, std::string_view value);
  ProtobufMessage& message(int field, const ProtobufMessage& value) { return text(field, value.bytes_); }

  const std::string& bytes() const { return bytes_; }

 private:
  void varint(uint64_t value);
  void fixed(uint64_t value, int bytes);
  void tag(int field, int wire_type) { varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type)); }

  std::string bytes_;
};

}  // namespace titanium::observe
