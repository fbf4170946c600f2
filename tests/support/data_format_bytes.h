// Files of tokens and archives, byte by byte as their makers define them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

namespace titanium::data::testing {

using TokenDocuments = std::vector<std::vector<int32_t>>;

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <typename T>
std::string packed(const TokenDocuments& documents) {
  std::vector<T> values;
  for (const auto& tokens : documents) values.insert(values.end(), tokens.begin(), tokens.end());
  return bytes_of(values);
}

// One sequence for each document, but every third has two.
inline std::string megatron_index(const TokenDocuments& documents, uint8_t dtype, int64_t width) {
  std::vector<int32_t> lengths;
  std::vector<int64_t> places, bounds = {0};
  int64_t place = 0;
  const auto add = [&](size_t tokens) {
    lengths.push_back(static_cast<int32_t>(tokens));
    places.push_back(place);
    place += static_cast<int64_t>(tokens) * width;
  };
  for (size_t i = 0; i < documents.size(); ++i) {
    const size_t first = i % 3 == 0 ? documents[i].size() / 2 : documents[i].size();
    add(first);
    if (i % 3 == 0) add(documents[i].size() - first);
    bounds.push_back(static_cast<int64_t>(lengths.size()));
  }
  std::string index("MMIDIDX\0\0", 9);
  index += bytes_of(std::vector<int64_t>{1}) + static_cast<char>(dtype);
  index += bytes_of(std::vector<int64_t>{static_cast<int64_t>(lengths.size()), static_cast<int64_t>(bounds.size())});
  return index + bytes_of(lengths) + bytes_of(places) + bytes_of(bounds);
}

// Columns: a fixed int64, a text, and the tokens as an array whose shape is part of each value.
inline std::string mds_shard(const TokenDocuments& documents) {
  const std::string config = R"({"version":2,"format":"mds","column_names":["id","text","tokens"],)"
                             R"("column_encodings":["int","str","ndarray:uint16"],"column_sizes":[8,null,null]})";
  std::string samples;
  std::vector<uint32_t> places;
  const auto first = static_cast<uint32_t>(4 + 4 * (documents.size() + 1) + config.size());
  for (size_t i = 0; i < documents.size(); ++i) {
    places.push_back(first + static_cast<uint32_t>(samples.size()));
    const std::string text = fmt::format("text {}", i);
    std::string array =
        std::string(1, char{1 << 2 | 1}) + bytes_of(std::vector{static_cast<uint16_t>(documents[i].size())});
    array += packed<uint16_t>({documents[i]});
    samples += bytes_of(std::vector{static_cast<uint32_t>(text.size()), static_cast<uint32_t>(array.size())});
    samples += bytes_of(std::vector{static_cast<int64_t>(i)}) + text + array;
  }
  places.push_back(first + static_cast<uint32_t>(samples.size()));
  return bytes_of(std::vector{static_cast<uint32_t>(documents.size())}) + bytes_of(places) + config + samples;
}

// A member of a tar archive; two zero blocks end one.
inline std::string tar_member(const std::string& name, const std::string& content, char type = '0') {
  std::string header(512, '\0');
  const auto put = [&](size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  put(0, name.substr(0, 100));
  put(100, "0000644");
  put(124, fmt::format("{:011o}", content.size()));
  put(136, "00000000000");
  put(148, "        ");
  header[156] = type;
  put(257, "ustar");
  put(263, "00");
  int sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  put(148, fmt::format("{:06o}", sum));
  header[154] = '\0';
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}

}  // namespace titanium::data::testing
