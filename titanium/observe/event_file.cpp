#include "titanium/observe/event_file.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>

#include "titanium/observe/protobuf.h"

namespace titanium::observe {
namespace {

template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
ProtobufMessage event_at_now() { return ProtobufMessage().number(1, wall_time()); }

// Summary { repeated Value value = 1; }  Value { string tag = 1; float simple_value = 2; }
ProtobufMessage summary(std::span<const Scalar> scalars) {
  ProtobufMessage message;
  for (const Scalar& scalar : scalars) {
    message.message(1, ProtobufMessage().text(1, scalar.tag).float32(2, static_cast<float>(scalar.value)));
  }
  return message;
}

// Value { string tag = 1; Image image = 4; SummaryMetadata metadata = 9; }
// Image { int32 height = 1; int32 width = 2; int32 colorspace = 3; bytes encoded_image_string = 4; }
// SummaryMetadata { PluginData plugin_data = 1; string summary_description = 3; }
// PluginData { string plugin_name = 1; }
ProtobufMessage summary(std::span<const ShownImage> images) {
  constexpr int64_t kRgb = 3;
  const ProtobufMessage plugin = ProtobufMessage().text(1, "images");
  ProtobufMessage message;
  for (size_t i = 0; i < images.size(); ++i) {
    const ShownImage& shown = images[i];
    const ProtobufMessage image =
        ProtobufMessage().integer(1, shown.height).integer(2, shown.width).integer(3, kRgb).text(4, shown.png);
    message.message(1, ProtobufMessage()
                           .text(1, fmt::format("validation_images/{}", i))
                           .message(4, image)
                           .message(9, ProtobufMessage().message(1, plugin).text(3, shown.caption)));
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
  write_record(event_at_now().text(3, "brain.Event:2").bytes());
}

void EventFile::write(int64_t step, std::span<const Scalar> scalars) {
  write_record(event_at_now().integer(2, step).message(5, summary(scalars)).bytes());
}

void EventFile::write_images(int64_t step, std::span<const ShownImage> images) {
  write_record(event_at_now().integer(2, step).message(5, summary(images)).bytes());
}

void EventFile::write_record(std::string_view event) {
  const std::string length = raw(static_cast<uint64_t>(event.size()));
  file_->append(fmt::format("{}{}{}{}", length, raw(masked_crc(length)), event, raw(masked_crc(event))));
}

}  // namespace titanium::observe
