#include "titanium/data/format/tar_members.h"

#include <charconv>
#include <cstring>

#include "titanium/base/error.h"

namespace titanium::data {
namespace {

// Octal digits, or in base 256 after a byte with the highest bit.
int64_t size_field(std::string_view field) {
  if ((static_cast<unsigned char>(field[0]) & 0x80U) != 0) {
    uint64_t size = 0;
    for (const char byte : field.substr(4)) size = size << 8U | static_cast<unsigned char>(byte);
    return static_cast<int64_t>(size & ((uint64_t{1} << 62U) - 1));
  }
  int64_t size = 0;
  field.remove_prefix(std::min(field.find_first_not_of(' '), field.size()));
  std::from_chars(field.data(), field.data() + field.size(), size, 8);
  return size;
}

std::string text_field(std::string_view field) { return std::string(field.substr(0, field.find('\0'))); }

// The value of `key` in the records "length key=value\n" of a pax header.
std::optional<std::string> pax_value(std::string_view records, std::string_view key) {
  const std::string wanted = fmt::format(" {}=", key);
  const size_t begin = records.find(wanted);
  if (begin == std::string_view::npos) return std::nullopt;
  const std::string_view value = records.substr(begin + wanted.size());
  return std::string(value.substr(0, value.find('\n')));
}

}  // namespace

bool is_tar_header(std::string_view header) {
  int64_t sum = 0;
  for (size_t i = 0; i < header.size(); ++i) {
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(header[i]);
  }
  int64_t stored = -1;
  const size_t begin = header.find_first_not_of(' ', 148);
  std::from_chars(header.data() + std::min<size_t>(begin, 155), header.data() + 156, stored, 8);
  return sum == stored;
}

std::optional<TarMember> next_tar_member(const TarInput& input) {
  std::optional<std::string> long_name;
  std::optional<int64_t> long_size;
  TarMember member;
  for (;;) {
    std::string header(kTarBlock, '\0');
    if (!input.read_header(header.data(), kTarBlock)) return std::nullopt;
    if (header.find_first_not_of('\0') == std::string::npos) return std::nullopt;
    if (!is_tar_header(header)) input.refuse("has no header of a member");
    const std::string_view view = header;
    member.type = header[156] == '\0' || header[156] == '7' ? '0' : header[156];
    member.size = long_size.value_or(size_field(view.substr(124, 12)));
    member.header += header;
    if (member.type == 'L' || member.type == 'x') {
      const std::string content = input.read_content(member.size);
      member.header += content + std::string(static_cast<size_t>(tar_padding(member.size)), '\0');
      long_name = member.type == 'L' ? text_field(content) : pax_value(content, "path");
      const auto size = member.type == 'x' ? pax_value(content, "size") : std::nullopt;
      if (size) long_size = std::atoll(size->c_str());
    } else {
      const std::string prefix = text_field(view.substr(345, 155));
      const std::string name = text_field(view.substr(0, 100));
      member.name = long_name.value_or(prefix.empty() ? name : fmt::format("{}/{}", prefix, name));
      return member;
    }
  }
}

std::optional<SampleName> sample_name(std::string_view name) {
  const size_t slash = name.rfind('/');
  const size_t base = slash == std::string_view::npos ? 0 : slash + 1;
  const size_t dot = name.find('.', base);
  if (dot == std::string_view::npos || dot == base) return std::nullopt;
  SampleName found{.key = std::string(name.substr(0, dot)), .ending = std::string(name.substr(dot + 1))};
  for (char& letter : found.ending)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return found;
}

std::vector<SamplePart> sample_parts(std::string_view record) {
  size_t at = 0;
  const auto take = [&](int64_t size) {
    TI_CHECK(size >= 0 && static_cast<size_t>(size) <= record.size() - at, "A sample of an archive is cut short.");
    const std::string_view bytes = record.substr(at, static_cast<size_t>(size));
    at += std::min(static_cast<size_t>(size + tar_padding(size)), record.size() - at);
    return bytes;
  };
  const TarInput input{.read_header =
                           [&](char* out, int64_t size) {
                             if (at == record.size()) return false;
                             std::memcpy(out, take(size).data(), static_cast<size_t>(size));
                             return true;
                           },
                       .read_content = [&](int64_t size) { return std::string(take(size)); },
                       .refuse = [](const std::string& problem) { throw Error("A sample of an archive " + problem); }};
  std::vector<SamplePart> parts;
  while (const auto member = next_tar_member(input)) {
    const std::string_view content = take(member->size);
    const auto name = sample_name(member->name);
    if (name) parts.push_back({.key = name->key, .ending = name->ending, .content = content});
  }
  return parts;
}

std::string tar_member(const std::string& name, std::string_view content) {
  TI_CHECK(!name.empty() && name.size() <= 100,
           "{} is no name for a member of an archive: it has {} bytes, and 1 to 100 fit.", name, name.size());
  TI_CHECK(content.size() < size_t{1} << 33U, "{} has {} bytes, too many for a member of an archive.", name,
           content.size());
  std::string header(kTarBlock, '\0');
  const auto put = [&](size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  put(0, name);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", content.size()));
  put(136, "00000000000");
  put(148, "        ");
  put(156, "0");
  put(257, "ustar");
  put(263, "00");
  int64_t sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  put(148, fmt::format("{:06o}", sum));
  header[154] = '\0';
  header.append(content);
  return header.append(static_cast<size_t>(tar_padding(static_cast<int64_t>(content.size()))), '\0');
}

std::string tar_end() { return std::string(2 * kTarBlock, '\0'); }

}  // namespace titanium::data
