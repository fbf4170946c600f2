#include "titanium/checkpoint/torch_file/zip_archive.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "titanium/base/error.h"
#include "titanium/base/text/printable.h"
#include "titanium/checkpoint/io/crc32.h"

namespace titanium::checkpoint {
namespace {

// Numbers in a zip file are little-endian, as all machines that Titanium runs on.
constexpr uint32_t kLocalHeader = 0x04034b50, kDescriptor = 0x08074b50, kDirectoryEntry = 0x02014b50, kEnd = 0x06054b50,
                   kEnd64 = 0x06064b50, kEnd64Locator = 0x07064b50;
constexpr size_t kLocalHeaderSize = 30, kDirectoryEntrySize = 46, kEndSize = 22, kEnd64Size = 56, kLocatorSize = 20;
constexpr uint16_t kStreamed = 0x0008, kUtf8 = 0x0800, kVersion64 = 45;
constexpr uint16_t kSizes64Field = 0x0001, kPaddingField = 0x4246;  // the second is torch's, for alignment
constexpr uint32_t kIn64 = 0xffffffff;                              // the true value is in a 64-bit field
constexpr size_t kMaxComment = 0xffff;
constexpr std::string_view kFolder = "archive/";
constexpr std::string_view kRemedy = "The file is damaged or incomplete: fetch or write it again.";

template <typename T>
T load(std::span<const std::byte> bytes, uint64_t position) {
  T value;
  std::memcpy(&value, bytes.data() + position, sizeof(T));
  return value;
}

bool fits(std::span<const std::byte> bytes, uint64_t position, uint64_t size) {
  return position <= bytes.size() && size <= bytes.size() - position;
}

std::string_view text(std::span<const std::byte> bytes, uint64_t position, size_t size) {
  return {reinterpret_cast<const char*>(bytes.data()) + position, size};
}

// The fields of an entry that do not fit 32 bits follow in this order in an extra field.
struct Wide {
  uint64_t size, compressed, header;
};

bool widen(std::span<const std::byte> extra, Wide& wide) {
  if (wide.size != kIn64 && wide.compressed != kIn64 && wide.header != kIn64) return true;
  while (extra.size() >= 4) {
    const auto id = load<uint16_t>(extra, 0), length = load<uint16_t>(extra, 2);
    if (length > extra.size() - 4) return false;
    if (id == kSizes64Field) {
      size_t position = 4;
      for (uint64_t* field : {&wide.size, &wide.compressed, &wide.header}) {
        if (*field != kIn64) continue;
        if (position + 8 > 4U + length) return false;
        *field = load<uint64_t>(extra, position);
        position += 8;
      }
      return true;
    }
    extra = extra.subspan(4U + length);
  }
  return false;
}

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename... T>
void put_all(std::string& out, T... values) {
  (put(out, values), ...);
}

uint32_t narrow(uint64_t value) { return value >= kIn64 ? kIn64 : static_cast<uint32_t>(value); }

}  // namespace

struct ZipArchive::Directory {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t entries = 0;
};

ZipArchive::Directory ZipArchive::find_directory() const {
  std::optional<uint64_t> end;
  const uint64_t lowest = bytes_.size() > kEndSize + kMaxComment ? bytes_.size() - kEndSize - kMaxComment : 0;
  for (uint64_t at = bytes_.size() >= kEndSize ? bytes_.size() - kEndSize + 1 : 0; at > lowest && !end; --at) {
    if (load<uint32_t>(bytes_, at - 1) == kEnd) end = at - 1;
  }
  TI_CHECK(end, "{}: {} bytes without the end of a zip archive. {}", what_, bytes_.size(), kRemedy);
  Directory found{.begin = load<uint32_t>(bytes_, *end + 16),
                  .end = load<uint32_t>(bytes_, *end + 12),  // the size, until the begin is known
                  .entries = load<uint16_t>(bytes_, *end + 10)};
  if (*end >= kLocatorSize && load<uint32_t>(bytes_, *end - kLocatorSize) == kEnd64Locator) {
    const auto end64 = load<uint64_t>(bytes_, *end - kLocatorSize + 8);
    TI_CHECK(fits(bytes_, end64, kEnd64Size) && load<uint32_t>(bytes_, end64) == kEnd64,
             "{}: the end of the zip archive is not where it should be. {}", what_, kRemedy);
    found = {.begin = load<uint64_t>(bytes_, end64 + 48),
             .end = load<uint64_t>(bytes_, end64 + 40),
             .entries = load<uint64_t>(bytes_, end64 + 32)};
  }
  TI_CHECK(fits(bytes_, found.begin, found.end) && found.entries <= found.end / kDirectoryEntrySize,
           "{}: the directory of the zip archive does not lie inside it. {}", what_, kRemedy);
  found.end += found.begin;
  return found;
}

void ZipArchive::add_record(uint64_t header, uint64_t size, uint32_t crc, std::string_view name) {
  const bool has_header = fits(bytes_, header, kLocalHeaderSize) && load<uint32_t>(bytes_, header) == kLocalHeader;
  const uint64_t name_size = has_header ? load<uint16_t>(bytes_, header + 26) : 0;
  const uint64_t data = header + kLocalHeaderSize + name_size + (has_header ? load<uint16_t>(bytes_, header + 28) : 0);
  TI_CHECK(has_header && fits(bytes_, data, size) && text(bytes_, header + kLocalHeaderSize, name_size) == name,
           "{}: record \"{}\" of the zip archive is not where its directory says. {}", what_, printable(name), kRemedy);
  const std::string_view short_name = name.substr(name.find('/') + 1);
  const bool first = records_.emplace(short_name, Record{bytes_.subspan(data, size), crc}).second;
  TI_CHECK(first, "{}: record \"{}\" of the zip archive is there twice. {}", what_, printable(name), kRemedy);
}

size_t ZipArchive::parse_entry(uint64_t position, const Directory& directory) {
  TI_CHECK(directory.end - position >= kDirectoryEntrySize && load<uint32_t>(bytes_, position) == kDirectoryEntry,
           "{}: the directory of the zip archive is damaged. {}", what_, kRemedy);
  const auto flags = load<uint16_t>(bytes_, position + 8), method = load<uint16_t>(bytes_, position + 10);
  const auto crc = load<uint32_t>(bytes_, position + 16);
  Wide wide{load<uint32_t>(bytes_, position + 24), load<uint32_t>(bytes_, position + 20),
            load<uint32_t>(bytes_, position + 42)};
  const uint64_t name_size = load<uint16_t>(bytes_, position + 28), extra_size = load<uint16_t>(bytes_, position + 30);
  const uint64_t size = kDirectoryEntrySize + name_size + extra_size + load<uint16_t>(bytes_, position + 32);
  TI_CHECK(directory.end - position >= size &&
               widen(bytes_.subspan(position + kDirectoryEntrySize + name_size, extra_size), wide),
           "{}: the directory of the zip archive is damaged. {}", what_, kRemedy);
  const std::string_view name = text(bytes_, position + kDirectoryEntrySize, name_size);
  TI_CHECK(method == 0 && wide.size == wide.compressed && (flags & 1) == 0,
           "{}: record \"{}\" of the zip archive is compressed or encrypted. Store it as torch.save does.", what_,
           printable(name));
  add_record(wide.header, wide.size, crc, name);
  return size;
}

ZipArchive::ZipArchive(std::span<const std::byte> bytes, const std::string& what) : bytes_(bytes), what_(what) {
  const Directory directory = find_directory();
  uint64_t position = directory.begin;
  for (uint64_t i = 0; i < directory.entries; ++i) position += parse_entry(position, directory);
}

const ZipArchive::Record* ZipArchive::find(std::string_view name) const {
  const auto found = records_.find(name);
  return found == records_.end() ? nullptr : &found->second;
}

const ZipArchive::Record& ZipArchive::record(std::string_view name) const {
  const Record* found = find(name);
  TI_CHECK(found != nullptr, "{}: the zip archive has no record \"{}\". {}", what_, printable(name), kRemedy);
  return *found;
}

void ZipArchive::verify(std::string_view except) const {
  for (const auto& [name, record] : records_) {
    if (record.crc == 0 || name.starts_with(except)) continue;
    TI_CHECK(crc32(record.bytes) == record.crc,
             "{}: the bytes of record \"{}\" have changed since they were written. {}", what_, printable(name),
             kRemedy);
  }
}

bool ZipArchive::has_checksums() const {
  return std::ranges::all_of(records_,
                             [](const auto& entry) { return entry.second.crc != 0 || entry.second.bytes.empty(); });
}

void ZipBuilder::put_header(const Entry& entry, uint64_t alignment) {
  const bool wide = entry.size >= kIn64;
  const uint32_t size = wide ? kIn64 : static_cast<uint32_t>(entry.streamed ? 0 : entry.size);
  std::string extra;
  if (wide) put_all(extra, kSizes64Field, uint16_t{16}, uint64_t{0}, uint64_t{0});
  const uint64_t data = entry.header + kLocalHeaderSize + entry.name.size() + extra.size() + 4;
  if (alignment > 1) {
    const auto padding = static_cast<uint16_t>((alignment - data % alignment) % alignment);
    put_all(extra, kPaddingField, padding);
    extra.append(padding, 'Z');
  }
  put_all(out_, kLocalHeader, wide ? kVersion64 : uint16_t{0},
          static_cast<uint16_t>(kUtf8 | (entry.streamed ? kStreamed : 0)), uint16_t{0}, uint32_t{0}, entry.crc, size,
          size, static_cast<uint16_t>(entry.name.size()), static_cast<uint16_t>(extra.size()));
  out_ += entry.name + extra;
}

void ZipBuilder::add(std::string_view name, std::string_view content) {
  entries_.push_back({.name = std::string(kFolder) + std::string(name),
                      .header = position(),
                      .size = content.size(),
                      .crc = crc32(std::as_bytes(std::span(content)))});
  put_header(entries_.back(), 1);
  out_ += content;
}

std::string ZipBuilder::begin(std::string_view name, uint64_t size, uint64_t alignment) {
  entries_.push_back(
      {.name = std::string(kFolder) + std::string(name), .header = position(), .size = size, .streamed = true});
  put_header(entries_.back(), alignment);
  written_ = position() + size;
  return std::exchange(out_, {});
}

void ZipBuilder::end(uint32_t crc) {
  Entry& entry = entries_.back();
  entry.crc = crc;
  put_all(out_, kDescriptor, crc);
  if (entry.size >= kIn64) {
    put_all(out_, entry.size, entry.size);
  } else {
    put_all(out_, static_cast<uint32_t>(entry.size), static_cast<uint32_t>(entry.size));
  }
}

void ZipBuilder::put_directory_entry(const Entry& entry) {
  std::string fields, extra;  // sizes and place that need 64 bits
  if (entry.size >= kIn64) put_all(fields, entry.size, entry.size);
  if (entry.header >= kIn64) put(fields, entry.header);
  if (!fields.empty()) put_all(extra, kSizes64Field, static_cast<uint16_t>(fields.size()));
  extra += fields;
  const uint16_t version = fields.empty() ? 0 : kVersion64;
  put_all(out_, kDirectoryEntry, version, version, static_cast<uint16_t>(kUtf8 | (entry.streamed ? kStreamed : 0)),
          uint16_t{0}, uint32_t{0}, entry.crc, narrow(entry.size), narrow(entry.size),
          static_cast<uint16_t>(entry.name.size()), static_cast<uint16_t>(extra.size()), uint16_t{0}, uint16_t{0},
          uint16_t{0}, uint32_t{0}, narrow(entry.header));
  out_ += entry.name + extra;
}

std::string ZipBuilder::finish() {
  const uint64_t begin = position(), count = entries_.size();
  for (const Entry& entry : entries_) put_directory_entry(entry);
  const uint64_t end = position(), size = end - begin;
  put_all(out_, kEnd64, uint64_t{kEnd64Size - 12}, kVersion64, kVersion64, uint32_t{0}, uint32_t{0}, count, count, size,
          begin, kEnd64Locator, uint32_t{0}, end, uint32_t{1});
  const auto short_count = static_cast<uint16_t>(std::min<uint64_t>(count, 0xffff));
  put_all(out_, kEnd, uint16_t{0}, uint16_t{0}, short_count, short_count, static_cast<uint32_t>(size), narrow(begin),
          uint16_t{0});
  return std::exchange(out_, {});
}

}  // namespace titanium::checkpoint
