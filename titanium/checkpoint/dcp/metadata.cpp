#include "titanium/checkpoint/dcp/metadata.h"

#include <algorithm>

#include "titanium/base/error.h"
#include "titanium/base/text/printable.h"
#include "titanium/checkpoint/boxes.h"
#include "titanium/checkpoint/torch_file/dtype.h"
#include "titanium/checkpoint/torch_file/pickle_reader.h"
#include "titanium/checkpoint/torch_file/pickle_writer.h"

namespace titanium::checkpoint {
namespace {

using Kind = PickleValue::Kind;
using Entries = std::vector<std::pair<PickleValue, PickleValue>>;

constexpr std::string_view kMetadataModule = "torch.distributed.checkpoint.metadata";
constexpr std::string_view kFileModule = "torch.distributed.checkpoint.filesystem";
constexpr std::string_view kVersion = "1.0.0";
constexpr size_t kMaxDims = 64;  // what ATen's operators take
constexpr std::string_view kRemedy = "The file is damaged: fetch or write the checkpoint again.";

// --- Reading ---

// The attributes of an object of that class.
const PickleValue& state_of(const PickleValue& value, std::string_view module, std::string_view name) {
  TI_CHECK(value.type_name() == fmt::format("{}.{}", module, name), "{} is expected where the file has {}. {}", name,
           value.short_repr(), kRemedy);
  return value.state();
}

Shape parse_shape(const PickleValue& value) {
  Shape shape;
  TI_CHECK(value.kind() == Kind::kTuple && value.items().size() <= kMaxDims,
           "a shape is not a tuple of at most {} sizes. {}", kMaxDims, kRemedy);
  for (const PickleValue& item : value.items()) shape.push_back(item.as_int());
  return shape;
}

void check_size(const std::string& name, const DcpTensor& tensor) {
  auto bytes = static_cast<int64_t>(c10::elementSize(tensor.dtype));
  for (const int64_t size : tensor.shape) {
    TI_CHECK(size >= 0 && !__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes),
             "tensor \"{}\" of shape [{}] is larger than any memory. {}", printable(name),
             fmt::join(tensor.shape, ", "), kRemedy);
  }
}

void parse_properties(const std::string& name, const PickleValue& value, DcpTensor& tensor) {
  TI_CHECK(value.type_name().ends_with(".metadata.TensorProperties") && value.state().kind() == Kind::kTuple &&
               value.state().items().size() == 5,
           "tensor \"{}\" has no properties. {}", printable(name), kRemedy);
  const auto fields = value.state().items();  // dtype, layout, requires_grad, memory format, pinned
  const TorchDtype* dtype = find_torch_dtype(fields[0].type_name());
  TI_CHECK(dtype != nullptr, "tensor \"{}\" has the unknown dtype {}. Convert it with torch first.", printable(name),
           fields[0].short_repr());
  const auto layout = fields[1].items();
  TI_CHECK(layout.size() == 1 && layout[0] == PickleValue("torch.strided"),
           "tensor \"{}\" has the layout {}, but only dense tensors can be read. Convert it with torch first.",
           printable(name), fields[1].short_repr());
  tensor.dtype = dtype->dtype;
  tensor.requires_grad = fields[2].as_bool();
}

DcpEntry parse_entry(const std::string& name, const PickleValue& value) {
  if (value.type_name() == fmt::format("{}.BytesStorageMetadata", kMetadataModule)) return DcpObject{};
  const PickleValue& state = state_of(value, kMetadataModule, "TensorStorageMetadata");
  DcpTensor tensor;
  parse_properties(name, state.at("properties"), tensor);
  tensor.shape = parse_shape(state.at("size"));
  check_size(name, tensor);
  for (const PickleValue& item : state.at("chunks").items()) {
    const PickleValue& chunk = state_of(item, kMetadataModule, "ChunkStorageMetadata");
    tensor.chunks.push_back({parse_shape(chunk.at("offsets")), parse_shape(chunk.at("sizes"))});
    const Box& box = tensor.chunks.back();
    TI_CHECK(lies_inside(box, tensor.shape), "tensor \"{}\" of shape [{}] has a chunk of shape [{}] at [{}]. {}",
             printable(name), fmt::join(tensor.shape, ", "), fmt::join(box.shape, ", "), fmt::join(box.offset, ", "),
             kRemedy);
  }
  return tensor;
}

DcpIndex parse_index(const PickleValue& value) {
  const PickleValue& state = state_of(value, kMetadataModule, "MetadataIndex");
  DcpIndex index{.name = state.at("fqn").as_string(), .offset = {}};
  const PickleValue* offset = state.find("offset");
  if (offset != nullptr && !offset->is_none()) index.offset = parse_shape(*offset);
  return index;
}

DcpLocation parse_location(const std::string& name, const PickleValue& value) {
  const PickleValue& state = state_of(value, kFileModule, "_StorageInfo");
  DcpLocation location{.file = state.at("relative_path").as_string(),
                       .offset = state.at("offset").as_int(),
                       .length = state.at("length").as_int(),
                       .transforms = {}};
  const std::string& file = location.file;
  TI_CHECK(!file.empty() && file != "." && file != ".." && file.find('/') == std::string::npos &&
               file.find('\0') == std::string::npos,
           "\"{}\" lies in {}, which is not the name of a file beside the metadata. {}", printable(name),
           PickleValue(file).short_repr(), kRemedy);
  TI_CHECK(location.offset >= 0 && location.length >= 0, "\"{}\" lies at byte {} and has {} bytes. {}", printable(name),
           location.offset, location.length, kRemedy);
  const PickleValue* transforms = state.find("transform_descriptors");
  if (transforms == nullptr || transforms->is_none()) return location;
  for (const PickleValue& transform : transforms->items()) location.transforms.push_back(transform.as_string());
  return location;
}

DcpPath parse_path(const PickleValue& value) {
  DcpPath path;
  for (const PickleValue& key : value.items()) {
    if (key.kind() == Kind::kInteger) {
      path.emplace_back(key.as_int());
    } else {
      path.emplace_back(key.kind() == Kind::kString ? key.as_string() : key.repr());
    }
  }
  return path;
}

// Calls use(key, value) for a dict; None is an empty one.
template <typename Use>
void for_each(const PickleValue& dict, const Use& use) {
  if (dict.is_none()) return;
  TI_CHECK(dict.kind() == Kind::kDict, "a dict is expected where the file has {}. {}", dict.short_repr(), kRemedy);
  const auto items = dict.items();
  for (size_t i = 0; i + 1 < items.size(); i += 2) use(items[i], items[i + 1]);
}

DcpMetadata parse(const PickleValue& value) {
  const PickleValue& state = state_of(value, kMetadataModule, "Metadata");
  DcpMetadata metadata;
  for_each(state.at("state_dict_metadata"), [&](const PickleValue& key, const PickleValue& entry) {
    const std::string& name = key.as_string();
    TI_CHECK(metadata.entries.emplace(name, parse_entry(name, entry)).second, "\"{}\" is there twice. {}",
             printable(name), kRemedy);
  });
  for_each(state.at("planner_data"), [&](const PickleValue& key, const PickleValue& path) {
    metadata.paths[key.as_string()] = parse_path(path);
  });
  for_each(state.at("storage_data"), [&](const PickleValue& key, const PickleValue& location) {
    DcpIndex index = parse_index(key);
    DcpLocation parsed = parse_location(index.name, location);
    metadata.locations[std::move(index)] = std::move(parsed);
  });
  const PickleValue* version = state.find("version");
  if (version != nullptr && !version->is_none()) metadata.version = version->as_string();
  return metadata;
}

// --- Writing ---

PickleValue metadata_object(std::string_view name, const Entries& attributes) {
  return PickleValue::instance(kMetadataModule, name, PickleValue::dict(attributes));
}

PickleValue size_of(const Shape& shape) {
  return PickleValue::call("torch", "Size", {PickleValue::tuple({shape.begin(), shape.end()})});
}

PickleValue format_entry(const DcpEntry& entry) {
  if (std::holds_alternative<DcpObject>(entry))
    return PickleValue::instance(kMetadataModule, "BytesStorageMetadata", {});
  const auto& tensor = std::get<DcpTensor>(entry);
  const PickleValue properties = PickleValue::instance(
      kMetadataModule, "TensorProperties",
      PickleValue::tuple({PickleValue::global("torch", torch_dtype(tensor.dtype).name),
                          PickleValue::call("torch.serialization", "_get_layout", {"torch.strided"}),
                          tensor.requires_grad, PickleValue::call(kMetadataModule, "_MEM_FORMAT_ENCODING", {0}),
                          false}));
  PickleValue::Items chunks;
  for (const Box& box : tensor.chunks) {
    chunks.push_back(
        metadata_object("ChunkStorageMetadata", {{"offsets", size_of(box.offset)}, {"sizes", size_of(box.shape)}}));
  }
  return metadata_object(
      "TensorStorageMetadata",
      {{"properties", properties}, {"size", size_of(tensor.shape)}, {"chunks", PickleValue::list(std::move(chunks))}});
}

PickleValue format_path(const std::string& name, const std::map<std::string, DcpPath>& paths) {
  const auto found = paths.find(name);
  if (found == paths.end() || found->second.empty()) return PickleValue::tuple({name});
  PickleValue::Items keys;
  for (const auto& key : found->second) {
    keys.push_back(std::visit([](const auto& part) { return PickleValue(part); }, key));
  }
  return PickleValue::tuple(std::move(keys));
}

PickleValue format_location(const DcpLocation& location) {
  return PickleValue::instance(
      kFileModule, "_StorageInfo",
      PickleValue::dict({{"relative_path", location.file}, {"offset", location.offset}, {"length", location.length}}));
}

// torch searches the chunk at the position that the index names before it searches all of them.
void add_locations(const std::string& name, const DcpEntry& entry, const std::map<DcpIndex, DcpLocation>& locations,
                   Entries& out) {
  const auto add = [&](const DcpIndex& index, const Entries& attributes) {
    const auto found = locations.find(index);
    TI_ASSERT(found != locations.end(), "{} has no location", name);
    out.emplace_back(metadata_object("MetadataIndex", attributes), format_location(found->second));
  };
  if (const auto* tensor = std::get_if<DcpTensor>(&entry)) {
    for (size_t i = 0; i < tensor->chunks.size(); ++i) {
      const Shape& offset = tensor->chunks[i].offset;
      add({name, offset}, {{"fqn", name}, {"index", i}, {"offset", size_of(offset)}});
    }
  } else {
    add({name, std::nullopt}, {{"fqn", name}, {"index", {}}});
  }
}

void merge_entry(const std::string& name, const DcpEntry& entry, DcpMetadata& whole) {
  const auto [found, first] = whole.entries.emplace(name, entry);
  if (first) return;
  const auto* part = std::get_if<DcpTensor>(&entry);
  auto* tensor = std::get_if<DcpTensor>(&found->second);
  TI_CHECK(part != nullptr && tensor != nullptr, "\"{}\" was written by two ranks. Let one of them write it.", name);
  TI_CHECK(part->shape == tensor->shape && part->dtype == tensor->dtype,
           "tensor \"{}\" has shape [{}] and dtype {} on one rank, but [{}] and {} on another. Build the same model on "
           "all ranks.",
           name, fmt::join(tensor->shape, ", "), torch_dtype(tensor->dtype).name, fmt::join(part->shape, ", "),
           torch_dtype(part->dtype).name);
  tensor->chunks.insert(tensor->chunks.end(), part->chunks.begin(), part->chunks.end());
}

}  // namespace

DcpMetadata parse_dcp_metadata(std::span<const std::byte> bytes, const std::string& what) {
  const PickleValue value = read_pickle(bytes, what);
  try {
    return parse(value);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", what, error.what()));
  }
}

std::string format_dcp_metadata(const DcpMetadata& metadata) {
  Entries entries, paths, locations;
  for (const auto& [name, entry] : metadata.entries) {
    entries.emplace_back(name, format_entry(entry));
    paths.emplace_back(name, format_path(name, metadata.paths));
    add_locations(name, entry, metadata.locations, locations);
  }
  const PickleValue storage_meta = metadata_object(
      "StorageMeta", {{"checkpoint_id", {}}, {"save_id", {}}, {"load_id", {}}, {"modules", PickleValue::list({})}});
  return write_pickle(metadata_object("Metadata", {{"state_dict_metadata", PickleValue::dict(entries)},
                                                   {"planner_data", PickleValue::dict(paths)},
                                                   {"storage_data", PickleValue::dict(locations)},
                                                   {"storage_meta", storage_meta},
                                                   {"version", kVersion}}));
}

DcpMetadata merge_dcp_metadata(std::span<const DcpMetadata> parts) {
  DcpMetadata whole{.entries = {}, .paths = {}, .locations = {}, .version = std::string(kVersion)};
  for (const DcpMetadata& part : parts) {
    for (const auto& [name, entry] : part.entries) merge_entry(name, entry, whole);
    whole.paths.insert(part.paths.begin(), part.paths.end());
    whole.locations.insert(part.locations.begin(), part.locations.end());
  }
  for (const auto& [name, entry] : whole.entries) {
    const auto* tensor = std::get_if<DcpTensor>(&entry);
    if (tensor == nullptr) continue;
    const auto overlap = find_overlap(tensor->chunks);
    TI_CHECK(!overlap, "chunks {} and {} of tensor \"{}\" overlap. Let one rank write each element.",
             to_string(tensor->chunks[overlap->first]), to_string(tensor->chunks[overlap->second]), name);
  }
  return whole;
}

}  // namespace titanium::checkpoint
