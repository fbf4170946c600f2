#include "titanium/checkpoint/sidecar.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "titanium/base/error.h"
#include "titanium/base/text/json.h"
#include "titanium/checkpoint/io/crc32.h"
#include "titanium/checkpoint/io/stretch_reader.h"

namespace titanium::checkpoint {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;
constexpr size_t kDigits = 8;  // of a checksum
constexpr std::string_view kRemedy = "The checkpoint is damaged: copy it again, or use another step.";

std::string format_blocks(const FileSum& sum) {
  std::string text;
  for (const uint32_t crc : sum.blocks) text += fmt::format("{:08x}", crc);
  return text;
}

std::string checksum_member(std::string_view before) {
  return fmt::format(",\"checksum\":\"{:08x}\"}}\n", crc32(std::as_bytes(std::span(before))));
}

bool is_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

FileSum parse_sum(const std::string& file, const json& value) {
  FileSum sum{.file = file, .size = static_cast<uint64_t>(integer_of(value.at("size"))), .blocks = {}};
  const auto text = value.at("blocks").get<std::string>();
  const uint64_t blocks = sum.size / kSumBlock + (sum.size % kSumBlock != 0 ? 1 : 0);
  TI_CHECK(is_file_name(file) && text.size() % kDigits == 0 && text.size() / kDigits == blocks,
           "file \"{}\" of {} bytes has {} digits of checksums. {}", file, sum.size, text.size(), kRemedy);
  for (size_t at = 0; at < text.size(); at += kDigits) {
    const char* begin = text.data() + at;
    const auto [end, error] = std::from_chars(begin, begin + kDigits, sum.blocks.emplace_back(), 16);
    TI_CHECK(error == std::errc() && end == begin + kDigits, "file \"{}\" has a checksum that is no number. {}", file,
             kRemedy);
  }
  return sum;
}

Sidecar parse(std::string_view text) {
  constexpr size_t kMemberSize = sizeof(",\"checksum\":\"01234567\"}\n") - 1;
  TI_CHECK(text.size() > kMemberSize &&
               checksum_member(text.substr(0, text.size() - kMemberSize)) == text.substr(text.size() - kMemberSize),
           "the bytes have changed since they were written. {}", kRemedy);
  const json value = parse_json(text);
  const int64_t version = integer_of(value.at("version"));
  TI_CHECK(version == kVersion, "this is version {}, but {} is expected. Use the program that wrote the checkpoint.",
           version, kVersion);
  Sidecar sidecar{.facts = value.at("facts").get<std::map<std::string, std::string>>(), .sums = {}};
  for (const auto& [file, sum] : value.at("files").items()) sidecar.sums.emplace(file, parse_sum(file, sum));
  return sidecar;
}

}  // namespace

std::string format_sidecar(const Sidecar& sidecar) {
  json files = json::object();
  for (const auto& [file, sum] : sidecar.sums) files[file] = {{"size", sum.size}, {"blocks", format_blocks(sum)}};
  const json value = {{"version", kVersion}, {"facts", sidecar.facts}, {"files", files}};
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  text.pop_back();  // the brace
  return text + checksum_member(text);
}

Sidecar parse_sidecar(std::span<const std::byte> bytes, const std::string& what) {
  try {
    return parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  } catch (const JsonError& error) {
    throw Error(fmt::format("{} {}. {}", what, error.what(), kRemedy));
  } catch (const json::exception&) {
    throw Error(fmt::format("{}: a member is missing or of another type. {}", what, kRemedy));
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", what, error.what()));
  }
}

std::map<std::string, FileSum> sum_folder(const std::filesystem::path& folder) {
  std::map<std::string, FileSum> sums;
  std::vector<Stretch> stretches;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name == kSidecarFile) continue;
    FileSum& sum = sums[name] = {.file = name, .size = entry.file_size(), .blocks = {}};
    sum.blocks.resize(sum.size / kSumBlock + (sum.size % kSumBlock != 0 ? 1 : 0));
    // Every call gets one block, because a stretch without units is cut where blocks end.
    const auto use = [&sum](uint64_t position, std::span<const std::byte> bytes) {
      sum.blocks[position / kSumBlock] = crc32(bytes);
    };
    stretches.push_back({.file = name, .what = {}, .end = sum.size, .crc = {}, .use = use});
  }
  const auto problems = read_stretches(folder, stretches, {}, {});
  if (!problems.empty()) throw Error(problems.front().message);
  return sums;
}

}  // namespace titanium::checkpoint
