// Files, encoders and readers that the tests of the data layer share.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <nlohmann/json.hpp>
#include <random>

#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/data/loader.h"

namespace titanium::data::testing {

namespace fs = std::filesystem;

// A folder that is empty at first and gone at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = ::testing::TempDir() + "titanium_data_XXXXXX";
    TI_ASSERT(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { fs::remove_all(path_); }

  fs::path write(const std::string& name, std::string_view content) const {
    write_file_atomically(path_ / name, content);
    return path_ / name;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

inline std::string gzip(std::string_view text) {
  z_stream state{};
  TI_ASSERT(deflateInit2(&state, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&state, text.size()), '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  TI_ASSERT(deflate(&state, Z_FINISH) == Z_STREAM_END);
  out.resize(state.total_out);
  deflateEnd(&state);
  return out;
}

inline std::string zstd(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

// Documents of very different lengths, some empty, that name their number: any mix-up changes the tokens.
inline std::vector<std::string> make_documents(int64_t count, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::vector<std::string> documents;
  for (int64_t i = 0; i < count; ++i) {
    std::string text = i % 17 == 5 ? "" : fmt::format("document {} ", i);
    const size_t length = random() % (i % 10 == 0 ? 700 : 60);
    while (text.size() < length) text += fmt::format("{} ", random() % 1000);
    documents.push_back(text);
  }
  return documents;
}

inline std::string to_json_lines(const std::vector<std::string>& documents) {
  std::string lines;
  for (const std::string& text : documents) lines += nlohmann::json{{"url", "x"}, {"text", text}}.dump() + "\n";
  return lines;
}

// Bytes as tokens, between 256 and 257.
inline std::vector<int32_t> encode_bytes(std::string_view text) {
  std::vector<int32_t> tokens = {256};
  for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  tokens.push_back(257);
  return tokens;
}

using Rows = std::vector<std::vector<int64_t>>;

// Input row and the label after it, so that one vector has all tokens of the sample. Ignored rows are left out.
inline void append_rows(const Batch& batch, Rows& rows) {
  for (int64_t row = 0; row < batch.batch; ++row) {
    const auto begin = static_cast<ptrdiff_t>(row * batch.seq_len);
    const auto end = begin + static_cast<ptrdiff_t>(batch.seq_len);
    if (batch.labels[static_cast<size_t>(begin)] == kIgnoreIndex) continue;
    std::vector<int64_t> tokens(batch.inputs.begin() + begin, batch.inputs.begin() + end);
    tokens.push_back(batch.labels[static_cast<size_t>(end - 1)]);
    rows.push_back(std::move(tokens));
  }
}

inline Rows read_batches(Loader& loader, int64_t count) {
  Rows rows;
  for (int64_t i = 0; i < count; ++i) {
    const auto batch = loader.next();
    if (!batch) break;
    append_rows(*batch, rows);
  }
  return rows;
}

// The sentence of the Error that `action` throws; empty if it throws none.
template <typename Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace titanium::data::testing
