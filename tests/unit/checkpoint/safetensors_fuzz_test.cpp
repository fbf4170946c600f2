// Random damage to headers: whatever the bytes, the parser answers with an Error or with entries that are consistent.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include "tests/support/fuzz.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/checkpoint/safetensors/header.h"

namespace titanium::checkpoint {
namespace {

constexpr std::string_view kHeader =
    R"({"__metadata__":{"format":"pt"},"layers.0.wq":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("norm":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"step":{"dtype":"I64","shape":[],)"
    R"("data_offsets":[32,40]},"none":{"dtype":"U8","shape":[0,9],"data_offsets":[40,40]}})";

// Bytes and words that headers are made of: damage with these gets further into the parser than noise does.
constexpr std::array<std::string_view, 20> kWords = {"{",       "}",
                                                     "[",       "]",
                                                     ",",       ":",
                                                     "\"",      "0",
                                                     "-1",      "18446744073709551615",
                                                     "1e9",     "9223372036854775807",
                                                     "F32",     "dtype",
                                                     "shape",   "data_offsets",
                                                     "null",    "__metadata__",
                                                     "\\u0000", "\xff"};

std::string damaged(std::string header, std::mt19937_64& random) {
  const int changes = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < changes; ++i) {
    const size_t at = random() % (header.size() + 1);
    const size_t length = random() % 8;
    switch (random() % 5) {
      case 0:
        if (at < header.size()) header[at] = static_cast<char>(random());
        break;
      case 1:
        header.insert(at, kWords[random() % kWords.size()]);
        break;
      case 2:
        header.erase(at, length);
        break;
      case 3:
        header.insert(at, header.substr(random() % header.size() / 2, 40));
        break;
      default:
        if (at < header.size() && std::isdigit(static_cast<unsigned char>(header[at])) != 0) {
          header[at] = static_cast<char>('0' + random() % 10);
        } else {
          header.replace(at, length, kWords[random() % kWords.size()]);
        }
    }
    if (header.empty()) header = "{}";
  }
  return header;
}

std::string file_with(const std::string& header, std::mt19937_64& random) {
  uint64_t length = header.size();
  if (random() % 16 == 0) length ^= uint64_t{1} << (random() % 64);
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  file += header + std::string(40, 'x');
  if (random() % 16 == 0) file.resize(random() % file.size());
  return file;
}

// Returns whether the file was accepted.
bool survives(const std::string& file) {
  SafetensorsHeader header;
  try {
    header = parse_safetensors_header(std::as_bytes(std::span(file)), "fuzz");
  } catch (const Error&) {
    return false;
  }
  uint64_t position = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    EXPECT_EQ(entry.begin, position);
    position = entry.end;
    EXPECT_EQ(at::empty(entry.shape, entry.dtype).nbytes(), entry.end - entry.begin);
  }
  EXPECT_EQ(header.data_offset + position, file.size());
  return true;
}

TEST(SafetensorsFuzz, DamagedHeadersGiveAnErrorOrConsistentEntries) {
  int64_t accepted = 0, refused = 0;
  test::fuzz(20'000, [&](std::mt19937_64& random) {
    if (HasFailure()) return;
    const std::string file = file_with(damaged(std::string(kHeader), random), random);
    (survives(file) ? accepted : refused) += 1;
    if (HasFailure()) ADD_FAILURE() << "header: " << file;
  });
  EXPECT_GT(accepted, 0) << "the damage is too heavy to reach the end of the parser";
  EXPECT_GT(refused, accepted);
  RecordProperty("headers", std::to_string(accepted + refused));
}

}  // namespace
}  // namespace titanium::checkpoint
