// The members of an archive of tar, in memory and one after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace titanium::data {

inline constexpr int64_t kTarBlock = 512;

struct TarMember {
  std::string name;
  int64_t size = 0;
  char type = '0';     // a plain file
  std::string header;  // its bytes, with those of the headers before it that name it
};

// Bytes up to the next block.
constexpr int64_t tar_padding(int64_t size) { return (kTarBlock - size % kTarBlock) % kTarBlock; }

// Whether the checksum of a header of kTarBlock bytes is its own.
bool is_tar_header(std::string_view header);

// Where members come from. Both throw.
struct TarInput {
  std::function<bool(char* out, int64_t size)> read_header;  // false: there is nothing more
  std::function<std::string(int64_t size)> read_content;     // of a header, without its padding, which is read too
  std::function<void(const std::string& problem)> refuse;    // throws
};

// The next member, of which only the headers have been read; nothing at the end of the archive.
std::optional<TarMember> next_tar_member(const TarInput& input);

// WebDataset's key ends at the first dot of the last part of the name; the rest, without the dot, says what the member
// is. Nothing for names without an ending and for hidden ones, which are no part of a sample.
struct SampleName {
  std::string key;
  std::string ending;  // in lower case
};
std::optional<SampleName> sample_name(std::string_view name);

// One part of a sample.
struct SamplePart {
  std::string key;
  std::string ending;
  std::string_view content;
};
// The parts of a record of Content::kSample.
std::vector<SamplePart> sample_parts(std::string_view record);

// A member as it stands in an archive: header, content and padding. Throws Error for a name that does not fit.
std::string tar_member(const std::string& name, std::string_view content);
// What ends an archive.
std::string tar_end();

}  // namespace titanium::data
