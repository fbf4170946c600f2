#include "titanium/observe/protobuf.h"

#include <bit>

namespace titanium::observe {

void ProtobufMessage::varint(uint64_t value) {
  while (value >= 0x80) {
    bytes_ += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  bytes_ += static_cast<char>(value);
}

void ProtobufMessage::fixed(uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) bytes_ += static_cast<char>(value >> (8 * i));
}

ProtobufMessage& ProtobufMessage::integer(int field, int64_t value) {
  tag(field, 0);
  varint(static_cast<uint64_t>(value));
  return *this;
}

ProtobufMessage& ProtobufMessage::number(int field, double value) {
  tag(field, 1);
  fixed(std::bit_cast<uint64_t>(value), 8);
  return *this;
}

ProtobufMessage& ProtobufMessage::float32(int field, float value) {
  tag(field, 5);
  fixed(std::bit_cast<uint32_t>(value), 4);
  return *this;
}

ProtobufMessage& ProtobufMessage::text(int field, std::string_view value) {
  tag(field, 2);
  varint(value.size());
  bytes_ += value;
  return *this;
}

}  // namespace titanium::observe
