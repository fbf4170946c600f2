#include "titanium/checkpoint/safetensors/header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "titanium/base/error.h"
#include "titanium/base/text/json.h"
#include "titanium/base/text/printable.h"

namespace titanium::checkpoint {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr size_t kMaxDims = 64;                    // what ATen's operators take
constexpr int kMaxJsonDepth = 3;                   // header, tensor, shape
constexpr std::string_view kMetadata = "__metadata__";
constexpr std::string_view kRemedy = "The file is damaged or incomplete: fetch or write it again.";

struct DtypeName {
  std::string_view name;
  Dtype dtype;
};
constexpr std::array kDtypes = {
    DtypeName{"F64", at::kDouble},
    DtypeName{"F32", at::kFloat},
    DtypeName{"F16", at::kHalf},
    DtypeName{"BF16", at::kBFloat16},
    DtypeName{"F8_E4M3", at::kFloat8_e4m3fn},
    DtypeName{"F8_E5M2", at::kFloat8_e5m2},
    DtypeName{"I64", at::kLong},
    DtypeName{"I32", at::kInt},
    DtypeName{"I16", at::kShort},
    DtypeName{"I8", at::kChar},
    DtypeName{"U64", at::kUInt64},
    DtypeName{"U32", at::kUInt32},
    DtypeName{"U16", at::kUInt16},
    DtypeName{"U8", at::kByte},
    DtypeName{"BOOL", at::kBool},
};

// "F32", "BF16", ... Throws Error for a dtype that the format cannot hold; `name` is the tensor's, for the message.
std::string_view safetensors_dtype_name(Dtype dtype, std::string_view name) {
  for (const DtypeName& known : kDtypes) {
    if (known.dtype == dtype) return known.name;
  }
  throw Error(fmt::format("tensor \"{}\" has dtype {}, which safetensors files cannot hold. Convert it.", name,
                          c10::toString(dtype)));
}

json parse_header_json(std::string_view text, const std::string& path) {
  try {
    return parse_json(text, {.depth = kMaxJsonDepth, .unique_keys = true});
  } catch (const JsonError& error) {
    throw Error(fmt::format("{}: the header {}. {}", path, error.what(), kRemedy));
  }
}

std::map<std::string, std::string> parse_metadata(const json& value, const std::string& path) {
  std::map<std::string, std::string> metadata;
  TI_CHECK(value.is_object(), "{}: {} is not an object of strings. {}", path, kMetadata, kRemedy);
  for (const auto& [key, text] : value.items()) {
    TI_CHECK(text.is_string(), "{}: {} has a value for \"{}\" that is not a string. {}", path, kMetadata,
             printable(key), kRemedy);
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

Dtype parse_dtype(const json& value, const std::string& where) {
  TI_CHECK(value.is_string(), "{}: no dtype. {}", where, kRemedy);
  const auto& name = value.get_ref<const std::string&>();
  for (const DtypeName& known : kDtypes) {
    if (known.name == name) return known.dtype;
  }
  std::vector<std::string_view> names;
  for (const DtypeName& known : kDtypes) names.push_back(known.name);
  throw Error(fmt::format("{}: dtype \"{}\" is unknown. Convert the tensor to one of {}.", where, printable(name),
                          fmt::join(names, ", ")));
}

Shape parse_shape(const json& value, const std::string& where) {
  TI_CHECK(value.is_array() && value.size() <= kMaxDims, "{}: the shape is not a list of at most {} sizes. {}", where,
           kMaxDims, kRemedy);
  Shape shape;
  for (const json& size : value) {
    TI_CHECK(size.is_number_unsigned() && size.get<uint64_t>() <= std::numeric_limits<int64_t>::max(),
             "{}: the shape has {}, which is not a size. {}", where, printable(size.dump()), kRemedy);
    shape.push_back(size.get<int64_t>());
  }
  return shape;
}

// Throws when strides or bytes would not fit into 64 bits, also for shapes that a zero makes empty.
uint64_t byte_size(const Shape& shape, Dtype dtype, const std::string& where) {
  auto bytes = static_cast<int64_t>(c10::elementSize(dtype));
  bool empty = false;
  for (const int64_t size : shape) {
    empty |= size == 0;
    TI_CHECK(!__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes),
             "{}: shape [{}] is larger than any memory. {}", where, fmt::join(shape, ", "), kRemedy);
  }
  return empty ? 0 : static_cast<uint64_t>(bytes);
}

SafetensorsEntry parse_entry(const std::string& name, const json& value, uint64_t data_size, const std::string& path) {
  const std::string where = fmt::format("{}: tensor \"{}\"", path, printable(name));
  TI_CHECK(value.is_object() && value.contains("dtype") && value.contains("shape") && value.contains("data_offsets"),
           "{} is not an object with dtype, shape and data_offsets. {}", where, kRemedy);
  SafetensorsEntry entry{.name = name,
                         .dtype = parse_dtype(value["dtype"], where),
                         .shape = parse_shape(value["shape"], where),
                         .begin = 0,
                         .end = 0};
  const json& offsets = value["data_offsets"];
  TI_CHECK(
      offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() && offsets[1].is_number_unsigned(),
      "{}: data_offsets is not a pair of positions. {}", where, kRemedy);
  entry.begin = offsets[0].get<uint64_t>();
  entry.end = offsets[1].get<uint64_t>();
  TI_CHECK(entry.begin <= entry.end && entry.end <= data_size,
           "{}: bytes {} to {} do not lie within the {} bytes of data. {}", where, entry.begin, entry.end, data_size,
           kRemedy);
  const uint64_t expected = byte_size(entry.shape, entry.dtype, where);
  TI_CHECK(entry.end - entry.begin == expected, "{}: {} bytes, but shape [{}] of {} needs {}. {}", where,
           entry.end - entry.begin, fmt::join(entry.shape, ", "), value["dtype"].get<std::string>(), expected, kRemedy);
  return entry;
}

void check_coverage(const std::vector<SafetensorsEntry>& entries, uint64_t data_size, const std::string& path) {
  uint64_t position = 0;
  for (const SafetensorsEntry& entry : entries) {
    TI_CHECK(entry.begin >= position, "{}: tensor \"{}\" begins at byte {}, inside the tensor before it. {}", path,
             printable(entry.name), entry.begin, kRemedy);
    TI_CHECK(entry.begin == position, "{}: bytes {} to {}, before tensor \"{}\", belong to no tensor. {}", path,
             position, entry.begin, printable(entry.name), kRemedy);
    position = entry.end;
  }
  TI_CHECK(position == data_size, "{}: the last {} bytes belong to no tensor. {}", path, data_size - position, kRemedy);
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, const std::string& path) {
  uint64_t length = 0;
  TI_CHECK(file.size() >= sizeof(length), "{}: {} bytes are too few for a safetensors file. {}", path, file.size(),
           kRemedy);
  std::memcpy(&length, file.data(), sizeof(length));
  const uint64_t rest = file.size() - sizeof(length);
  TI_CHECK(length <= rest && length <= kMaxHeaderBytes,
           "{}: a header of {} bytes is announced, but {} bytes follow and {} is the limit. Check that it is a "
           "safetensors file; if so, it is damaged or incomplete: fetch or write it again.",
           path, length, rest, kMaxHeaderBytes);
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + sizeof(length), length);
  const json document = parse_header_json(text, path);
  TI_CHECK(document.is_object(), "{}: the header is not a JSON object. {}", path, kRemedy);

  SafetensorsHeader header{.data_offset = sizeof(length) + length, .entries = {}, .metadata = {}};
  for (const auto& [name, value] : document.items()) {
    if (name == kMetadata) {
      header.metadata = parse_metadata(value, path);
    } else {
      header.entries.push_back(parse_entry(name, value, rest - length, path));
    }
  }
  std::ranges::sort(header.entries, {}, [](const auto& entry) { return std::pair(entry.begin, entry.end); });
  check_coverage(header.entries, rest - length, path);
  return header;
}

std::string format_safetensors_header(const SafetensorsHeader& header) {
  // Joined by hand: an ordered JSON object searches itself for every key, and there may be 10^5 of them.
  std::vector<std::string> members;
  const auto add = [&](const std::string& key, const json& value) {
    members.push_back(json(key).dump() + ":" + value.dump());
  };
  try {
    if (!header.metadata.empty()) add(std::string(kMetadata), header.metadata);
    for (const SafetensorsEntry& entry : header.entries) {
      TI_CHECK(entry.name != kMetadata, "a tensor is named {}, which the format reserves. Rename it.", kMetadata);
      add(entry.name, {{"dtype", safetensors_dtype_name(entry.dtype, entry.name)},
                       {"shape", entry.shape},
                       {"data_offsets", {entry.begin, entry.end}}});
    }
  } catch (const json::exception& error) {
    throw Error(fmt::format("a tensor name or a value of the metadata is not UTF-8 ({}). Rename it.", error.what()));
  }
  std::string text = fmt::format("{{{}}}", fmt::join(members, ","));
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

}  // namespace titanium::checkpoint
