#include "titanium/data/tokenizer/files/parts_cache.h"

#include <sys/stat.h>

#include <cstdlib>
#include <cstring>

#include "titanium/base/files/file.h"
#include "titanium/base/text/json.h"
#include "titanium/data/tokenizer/text/byte_hash.h"

namespace titanium::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "titanium tokenizer 1\n";  // counts up with every change of the tables
constexpr size_t kSmallest = 1 << 20;                          // bytes of content that are worth keeping
constexpr uint64_t kSecondSeed = 0xC2B2AE3D27D4EB4Fu;

// Appends arrays, each with its size in front.
class Writer {
 public:
  template <typename... Arrays>
  void operator()(const Arrays&... arrays) {
    (append(arrays.data(), arrays.size() * sizeof(arrays[0])), ...);
  }
  std::string bytes;

 private:
  void append(const void* data, uint64_t size) {
    bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
    bytes.append(static_cast<const char*>(data), size);
  }
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <typename... Arrays>
  void operator()(Arrays&... arrays) {
    (read(arrays), ...);
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  template <typename Array>
  void read(Array& array) {
    uint64_t size = 0;
    std::memcpy(&size, take(sizeof size).data(), sizeof size);
    const std::string_view content = take(size);
    array.resize(size / sizeof(array[0]));
    std::memcpy(array.data(), content.data(), content.size());
  }

  std::string_view take(uint64_t size) {
    TI_CHECK(size <= bytes_.size(), "a file of the tokenizer cache is cut short.");
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }

  std::string_view bytes_;
};

fs::path cache_folder() {
  const char* base = std::getenv("XDG_CACHE_HOME");
  if (base != nullptr && *base != '\0') return fs::path(base) / "titanium/tokenizers";
  const char* home = std::getenv("HOME");
  return home != nullptr && *home != '\0' ? fs::path(home) / ".cache/titanium/tokenizers" : fs::path();
}

std::string name_of(std::string_view kind, const std::vector<std::string>& contents) {
  uint64_t first = hash_bytes(kMagic), second = hash_bytes(kind, kSecondSeed);
  for (const std::string& content : contents) {
    first = mix_bits(first ^ hash_bytes(content), kSecondSeed);
    second = mix_bits(second ^ hash_bytes(content, kSecondSeed), first | 1);
  }
  return fmt::format("{:016x}{:016x}.bin", first, second);
}

std::string serialize(TokenizerParts& parts) {
  Writer writer;
  writer(parts.json.dump());
  std::visit([&](auto& tables) { tables.exchange(writer); }, parts.tables);
  const uint64_t checksum = hash_bytes(writer.bytes);
  std::string file(kMagic);
  file.append(reinterpret_cast<const char*>(&checksum), sizeof checksum);
  return file + writer.bytes;
}

std::optional<TokenizerParts> deserialize(std::string_view file) {
  uint64_t checksum = 0;
  if (!file.starts_with(kMagic) || file.size() < kMagic.size() + sizeof checksum) return std::nullopt;
  file.remove_prefix(kMagic.size());
  std::memcpy(&checksum, file.data(), sizeof checksum);
  file.remove_prefix(sizeof checksum);
  if (hash_bytes(file) != checksum) return std::nullopt;
  Reader reader(file);
  std::string json;
  reader(json);
  TokenizerParts parts{parse_json(json), BpeTables{}};
  if (type_of(field_or_null(parts.json, "model"), "model") == "Unigram") parts.tables = UnigramTables{};
  std::visit([&](auto& tables) { tables.exchange(reader); }, parts.tables);
  return reader.at_end() ? std::optional(std::move(parts)) : std::nullopt;
}

}  // namespace

TokenizerParts cached_parts(std::string_view kind, const std::vector<std::string>& contents,
                            const std::function<TokenizerParts()>& read) {
  size_t size = 0;
  for (const std::string& content : contents) size += content.size();
  const fs::path folder = cache_folder();
  if (size < kSmallest || folder.empty()) return read();
  const fs::path file = folder / name_of(kind, contents);
  try {
    if (fs::exists(file)) {
      if (auto parts = deserialize(read_file(file, "tokenizer cache"))) return std::move(*parts);
    }
  } catch (const Error&) {  // it is made again
  }
  TokenizerParts parts = read();
  try {
    write_file_atomically(file, serialize(parts));
  } catch (const Error&) {  // a home that is full or read-only costs time, nothing else
  }
  return parts;
}

}  // namespace titanium::data
