#include "titanium/data/image/prepared_images.h"

#include <fmt/ranges.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/base/text/json.h"
#include "titanium/base/text/utf8.h"
#include "titanium/data/document.h"
#include "titanium/data/format/tar_members.h"
#include "titanium/data/image/image_text.h"

namespace titanium::data {
namespace {

using Json = nlohmann::ordered_json;
constexpr int64_t kFormat = 1;
constexpr int64_t kLargest = int64_t{1} << 20;  // of a size, so that products of three fit

struct StoredDtype {
  std::string_view name, in_safetensors;
  int64_t bytes;
};
constexpr std::array<StoredDtype, 3> kDtypes = {
    {{"float32", "F32", 4}, {"bfloat16", "BF16", 2}, {"float16", "F16", 2}}};

const StoredDtype* find_dtype(std::string_view name) {
  const auto* const found = std::ranges::find(kDtypes, name, &StoredDtype::name);
  return found == kDtypes.end() ? nullptr : found;
}

// The table of a safetensors file and the bytes after it.
struct Tensors {
  Json table;
  std::string_view bytes;
};

Tensors parse_table(std::string_view file) {
  uint64_t length = 0;
  if (file.size() < sizeof(length)) throw Error("has no whole .safetensors");
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > file.size() - sizeof(length)) throw Error("has no whole .safetensors");
  try {
    return {parse_ordered_json(file.substr(sizeof(length), length)), file.substr(sizeof(length) + length)};
  } catch (const JsonError&) {
    throw Error("has a damaged .safetensors");
  }
}

void append_tensor(const Tensors& tensors, const std::string& name, const std::vector<int64_t>& shape,
                   const StoredDtype& dtype, std::vector<uint8_t>& out) {
  const auto found = tensors.table.find(name);
  if (found == tensors.table.end() || !found->is_object()) throw Error(fmt::format("has no tensor {}", name));
  int64_t size = dtype.bytes;
  for (const int64_t dim : shape) size *= dim;
  try {
    const auto place = found->at("data_offsets").get<std::vector<uint64_t>>();
    if (found->at("dtype").get<std::string>() != dtype.in_safetensors ||
        found->at("shape").get<std::vector<int64_t>>() != shape) {
      throw Error(fmt::format("has a tensor {} that is not [{}] in {}", name, fmt::join(shape, ", "), dtype.name));
    }
    const bool inside = place.size() == 2 && place[0] <= place[1] && place[1] <= tensors.bytes.size() &&
                        place[1] - place[0] == static_cast<uint64_t>(size);
    if (!inside) throw Error("has no whole .safetensors");
    const auto* const begin = reinterpret_cast<const uint8_t*>(tensors.bytes.data()) + place[0];
    out.insert(out.end(), begin, begin + size);
  } catch (const nlohmann::json::exception&) {
    throw Error("has a damaged .safetensors");
  }
}

// Calls visit(key, member) for every member of a description.
void visit_members(auto& description, const auto& visit) {
  auto& sizes = description.sizes;
  visit("img_size", sizes.img_size);
  visit("latent_channels", sizes.latent_channels);
  visit("latent_side", sizes.latent_side);
  visit("text_tokens", sizes.text_tokens);
  visit("text_width", sizes.text_width);
  visit("pooled_width", sizes.pooled_width);
  visit("dtype", sizes.dtype);
  visit("t5_encoder", description.t5_encoder.name);
  visit("t5_weights", description.t5_encoder.weights);
  visit("clip_encoder", description.clip_encoder.name);
  visit("clip_weights", description.clip_encoder.weights);
  visit("autoencoder", description.autoencoder.name);
  visit("autoencoder_weights", description.autoencoder.weights);
  visit("fingerprint", description.fingerprint);
  visit("seed", description.seed);
  visit("streams", description.streams);
  visit("samples", description.samples);
}

}  // namespace

std::string to_json(const PreparedDescription& description) {
  Json json = {{"format", kFormat}};
  visit_members(description, [&](const char* key, const auto& value) { json[key] = value; });
  return json.dump(2) + "\n";
}

PreparedDescription prepared_description_from_json(std::string_view text, const std::string& place) {
  PreparedDescription description;
  try {
    const Json json = parse_ordered_json(text);
    TI_CHECK(integer_of(json.at("format")) == kFormat,
             "{} was written by another version of titanium. Prepare the images again.", place);
    visit_members(description, [&](const char* key, auto& value) {
      // Folders that were made before fingerprints were written have none.
      if (std::string_view(key).ends_with("_weights") && !json.contains(key)) return;
      if constexpr (std::is_same_v<decltype(value), std::string&>) {
        json.at(key).get_to(value);
      } else {
        value = integer_of(json.at(key));
      }
    });
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("{} is damaged: {}. Prepare the images again.", place, error.what()));
  } catch (const JsonError& error) {
    throw Error(fmt::format("{} {}. Prepare the images again.", place, error.what()));
  }
  const PreparedSizes& sizes = description.sizes;
  for (const int64_t size : {sizes.img_size, sizes.latent_channels, sizes.latent_side, sizes.text_tokens,
                             sizes.text_width, sizes.pooled_width}) {
    TI_CHECK(size >= 1 && size <= kLargest, "{} is damaged: it has a size of {}. Prepare the images again.", place,
             size);
  }
  const std::string& digits = description.fingerprint;
  const bool is_fingerprint = digits.size() == 16 && digits.find_first_not_of("0123456789abcdef") == std::string::npos;
  TI_CHECK(find_dtype(sizes.dtype) != nullptr && is_fingerprint,
           "{} is damaged: dtype or fingerprint make no sense. Prepare the images again.", place);
  return description;
}

ImageEncodings parse_encodings(std::string_view file, const PreparedSizes& sizes, bool latents) {
  const StoredDtype& dtype = *find_dtype(sizes.dtype);
  const Tensors tensors = parse_table(file);
  ImageEncodings encodings;
  if (latents) {
    const std::vector<int64_t> shape = {sizes.latent_channels, sizes.latent_side, sizes.latent_side};
    append_tensor(tensors, "mean", shape, dtype, encodings.moments);
    append_tensor(tensors, "logvar", shape, dtype, encodings.moments);
  }
  append_tensor(tensors, "t5_encodings", {sizes.text_tokens, sizes.text_width}, dtype, encodings.text);
  append_tensor(tensors, "clip_encodings", {sizes.pooled_width}, dtype, encodings.pooled);
  return encodings;
}

PreparedSample prepared_sample(const Record& record, const PreparedSizes& sizes) {
  TI_ASSERT(record.block->content == Content::kSample);
  const std::vector<SamplePart> parts = sample_parts(record.bytes);
  PreparedSample sample{.key = parts.empty() ? "" : parts[0].key, .caption = {}, .encodings = {}};
  const auto part = [&](std::string_view ending) {
    const auto found = std::ranges::find(parts, ending, &SamplePart::ending);
    if (found == parts.end()) throw Error(fmt::format("has no .{}", ending));
    return found->content;
  };
  try {
    sample.encodings = parse_encodings(part("safetensors"), sizes, /*latents=*/true);
    sample.caption = part("txt");
    if (!is_utf8(sample.caption)) throw Error("has a caption that is not UTF-8");
  } catch (const Error& error) {
    throw BadRecord(refusal(record, sample.key, error.what()));
  }
  return sample;
}

bool is_prepared(const std::filesystem::path& folder) { return std::filesystem::exists(folder / kPreparedFile); }

PreparedImages open_prepared_images(const std::filesystem::path& folder) {
  if (!is_prepared(folder)) {
    const bool begun = std::filesystem::exists(folder / kEmptyCaptionFile);
    throw UsageError(fmt::format("{} has no {}: {}", folder.string(), kPreparedFile,
                                 begun ? "its preparation has not ended. Run titanium data prepare-images again, which "
                                         "goes on where it was."
                                       : "encoder.offline reads folders of titanium data prepare-images. Make one, or "
                                         "set encoder.offline = false."));
  }
  const std::filesystem::path description = folder / kPreparedFile, empty = folder / kEmptyCaptionFile;
  PreparedImages prepared{
      prepared_description_from_json(read_file(description, "description of prepared images"), description.string()),
      {},
      folder / kPreparedShards};
  try {
    const std::string bytes = read_file(empty, "encodings of an empty caption");
    prepared.empty = parse_encodings(bytes, prepared.description.sizes, /*latents=*/false);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}. Prepare the images again.", empty.string(), error.what()));
  }
  return prepared;
}

}  // namespace titanium::data
