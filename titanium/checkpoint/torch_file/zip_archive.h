// Zip archives as torch.save makes them: records are stored, not compressed, and the directory is at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace titanium::checkpoint {

// Reads an archive in memory, which must outlive this.
class ZipArchive {
 public:
  struct Record {
    std::span<const std::byte> bytes;
    uint32_t crc = 0;  // 0: unknown; torch leaves it out when told to
  };

  using Records = std::map<std::string, Record, std::less<>>;  // by name

  // Reads the directory. Throws Error that names `what` when a record is compressed or encrypted, lies outside, or
  // anything else does not fit together. Also archives beyond 4 GiB.
  ZipArchive(std::span<const std::byte> bytes, const std::string& what);
  // Takes records that were found in another way.
  ZipArchive(Records records, const std::string& what) : what_(what), records_(std::move(records)) {}

  // The record of a name without the folder that torch puts in front of every name, or null: "data.pkl", "data/0".
  const Record* find(std::string_view name) const;
  // Throws Error when there is none.
  const Record& record(std::string_view name) const;
  // Throws Error when the bytes of a record are not those that its checksum was made of. Leaves out those whose names
  // begin with `except`.
  void verify(std::string_view except = "/") const;
  // Whether every record with bytes has a checksum.
  bool has_checksums() const;

 private:
  struct Directory;
  Directory find_directory() const;
  void add_record(uint64_t header, uint64_t size, uint32_t crc, std::string_view name);
  size_t parse_entry(uint64_t position, const Directory& directory);

  std::span<const std::byte> bytes_;
  std::string what_;
  Records records_;
};

// Makes an archive piece by piece. Names get the folder "archive/".
class ZipBuilder {
 public:
  // A record whose bytes are at hand.
  void add(std::string_view name, std::string_view content);
  // A record of `size` bytes that the caller writes after the bytes that this returns: everything so far. The record
  // begins at a multiple of `alignment` from the beginning of the archive. After it come only records of this kind.
  std::string begin(std::string_view name, uint64_t size, uint64_t alignment);
  // After `begin` and the record's bytes, which have the checksum `crc`.
  void end(uint32_t crc);
  // The bytes since the last record that the caller wrote: the rest of the archive.
  std::string finish();

 private:
  struct Entry {
    std::string name;
    uint64_t header = 0;
    uint64_t size = 0;
    uint32_t crc = 0;
    bool streamed = false;
  };
  void put_header(const Entry& entry, uint64_t alignment);
  void put_directory_entry(const Entry& entry);
  uint64_t position() const { return written_ + out_.size(); }

  std::string out_;
  uint64_t written_ = 0;  // bytes that are no longer in `out_`
  std::vector<Entry> entries_;
};

}  // namespace titanium::checkpoint
