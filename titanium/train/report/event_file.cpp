#include "titanium/train/report/event_file.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>

namespace titanium::train {
namespace {

// Protocol buffers by hand: a field is its number and kind, then the value.
enum WireKind : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

std::string key(int field, WireKind kind) { return varint(static_cast<uint64_t>(field) << 3 | kind); }

std::string bytes_field(int field, std::string_view bytes) {
  return key(field, kBytes) + varint(bytes.size()) + std::string(bytes);
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
std::string event_at_now() { return key(1, kFixed64) + raw(wall_time()); }

// Summary { repeated Value value = 1; }  Value { string tag = 1; float simple_value = 2; }
std::string summary(std::span<const Scalar> scalars) {
  std::string message;
  for (const Scalar& scalar : scalars) {
    message += bytes_field(1, bytes_field(1, scalar.tag) + key(2, kFixed32) + raw(static_cast<float>(scalar.value)));
  }
  return message;
}

std::string unique_name() {
  static std::atomic<int> count = 0;
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("events.out.tfevents.{:.0f}.{}.{}.{}", wall_time(), host.data(), ::getpid(), count++);
}

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78U : 0);
    table[i] = crc;
  }
  return table;
}

// A checksum of data that itself holds checksums would be weak; the format stores it turned and shifted.
uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8U; }

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTable = crc_table();
  uint32_t crc = ~0U;
  for (const char byte : bytes) crc = kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff] ^ crc >> 8;
  return ~crc;
}

EventFile::EventFile(const std::filesystem::path& folder) : path_(folder / unique_name()) {
  std::error_code ignored;  // the file's own error says it all
  std::filesystem::create_directories(folder, ignored);
  file_ = std::make_unique<GrowingFile>(path_, "Check job.dump_folder and its permissions.");
  write_record(event_at_now() + bytes_field(3, "brain.Event:2"));
}

void EventFile::write(int64_t step, std::span<const Scalar> scalars) {
  write_record(event_at_now() + key(2, kVarint) + varint(static_cast<uint64_t>(step)) +
               bytes_field(5, summary(scalars)));
}

void EventFile::write_record(std::string_view event) {
  const std::string length = raw(static_cast<uint64_t>(event.size()));
  file_->append(fmt::format("{}{}{}{}", length, raw(masked_crc(length)), event, raw(masked_crc(event))));
}

}  // namespace titanium::train
