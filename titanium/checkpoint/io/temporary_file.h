// Files that appear whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <span>
#include <string_view>

namespace titanium::remote {
class ObjectWriter;
}

namespace titanium::checkpoint {

// Written beside its place, then moved there; removed when something fails before that. Missing folders are made.
// Bytes are copied into blocks; while one is filled, the other is written, past the page cache where the file system
// allows that: a checkpoint neither waits for a copy of itself in the cache nor drives other files out of it.
// At an address, the blocks go to the object store, where the object appears when it is published
// (remote/stores/object_writer.h). Everything here throws Error that names the target, the reason of the system and the
// remedy; about bytes, also later.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& target);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Bytes written so far.
  uint64_t size() const { return size_; }
  // The bytes are on the disk before the name is.
  void publish();

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  using Block = std::unique_ptr<std::byte, Free>;

  void finish_block();
  void write_at(std::span<const std::byte> bytes, uint64_t position);
  bool set_direct(bool direct);
  void check(bool good) const;

  std::unique_ptr<remote::ObjectWriter> object_;  // of an address, which needs nothing of what follows
  std::filesystem::path target_;
  std::filesystem::path path_;
  int file_ = -1;
  bool direct_ = false;
  uint64_t size_ = 0;
  Block filling_, resting_;
  size_t filled_ = 0;
  std::future<void> writing_;  // `resting_`, until it is done
};

// Returns when the names in the folder are on the disk. Does nothing at an address.
void sync_folder(const std::filesystem::path& folder);

}  // namespace titanium::checkpoint
