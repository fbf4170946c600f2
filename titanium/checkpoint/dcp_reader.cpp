#include "titanium/checkpoint/dcp_reader.h"

#include <ATen/ops/empty.h>

#include "titanium/base/error.h"
#include "titanium/base/nearest_name.h"
#include "titanium/checkpoint/boxes.h"
#include "titanium/checkpoint/stored_copy.h"
#include "titanium/checkpoint/torch_archive.h"
#include "titanium/checkpoint/torch_dtype.h"

namespace titanium::checkpoint {
namespace {

constexpr std::string_view kRemedy = "The checkpoint is damaged or incomplete: copy it again, or use another step.";

DcpMetadata open_metadata(const std::filesystem::path& folder) {
  std::error_code ignored;
  TI_CHECK(std::filesystem::is_directory(folder, ignored), "checkpoint folder {} does not exist. Check the path.",
           folder.string());
  const std::filesystem::path path = folder / ".metadata";
  TI_CHECK(std::filesystem::exists(path, ignored),
           "folder {} has no file .metadata, so it is no distributed checkpoint, or writing it was interrupted. Use "
           "another step.",
           folder.string());
  const MappedFile file(path, "checkpoint metadata");
  return parse_dcp_metadata(file.bytes(), path.string());
}

}  // namespace

DcpReader::DcpReader(const std::filesystem::path& folder) : folder_(folder), metadata_(open_metadata(folder)) {}

std::string DcpReader::where(const std::string& name) const {
  return fmt::format("{}: \"{}\"", folder_.string(), name);
}

const DcpEntry& DcpReader::entry(const std::string& name) const {
  const auto found = metadata_.entries.find(name);
  if (found != metadata_.entries.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, entry] : metadata_.entries) names.push_back(known);
  const auto near = nearest_name(name, names);
  throw Error(fmt::format("{} has nothing named \"{}\"{}. Check that the checkpoint is of this model.",
                          folder_.string(), name, near ? fmt::format(" (the nearest is \"{}\")", *near) : ""));
}

const DcpTensor& DcpReader::tensor(const std::string& name) const {
  const auto* found = std::get_if<DcpTensor>(&entry(name));
  TI_CHECK(found != nullptr, "{} is not a tensor but another Python value. Check that the checkpoint is of this model.",
           where(name));
  return *found;
}

const MappedFile& DcpReader::mapped(const DcpIndex& index, const std::string& file) const {
  const std::lock_guard lock(mutex_);
  auto& found = files_[file];
  if (!found) {
    std::error_code ignored;
    TI_CHECK(std::filesystem::exists(folder_ / file, ignored), "{} lies in {}, which is missing. {}", where(index.name),
             file, kRemedy);
    found = std::make_unique<MappedFile>(folder_ / file, "checkpoint file");
  }
  return *found;
}

std::span<const std::byte> DcpReader::bytes_at(const DcpIndex& index) const {
  const auto found = metadata_.locations.find(index);
  TI_CHECK(found != metadata_.locations.end(), "{} has a chunk at [{}] that lies in no file. {}", where(index.name),
           fmt::join(index.offset.value_or(Shape()), ", "), kRemedy);
  const DcpLocation& location = found->second;
  TI_CHECK(location.transforms.empty(),
           "{} was saved with the extension {}, which Titanium does not have. Save it without extensions.",
           where(index.name), fmt::join(location.transforms, ", "));
  const auto bytes = std::span<const std::byte>(mapped(index, location.file).bytes());
  const auto offset = static_cast<uint64_t>(location.offset), length = static_cast<uint64_t>(location.length);
  TI_CHECK(offset <= bytes.size() && length <= bytes.size() - offset,
           "{} takes bytes {} to {} of {}, which has only {}. {}", where(index.name), offset, offset + length,
           location.file, bytes.size(), kRemedy);
  return bytes.subspan(offset, length);
}

void DcpReader::copy_piece(const std::string& name, const DcpTensor& saved, const Box& chunk, const Box& piece,
                           const Tensor& destination) const {
  const TorchArchive archive(bytes_at({name, chunk.offset}), where(name));
  const StoredTensor stored = archive.tensor(archive.value());
  TI_CHECK(stored.dtype == saved.dtype && stored.shape == chunk.shape,
           "{}: the chunk at [{}] is stored as {} of shape [{}], but the metadata say {} of shape [{}]. {}",
           where(name), fmt::join(chunk.offset, ", "), torch_dtype(stored.dtype).name, fmt::join(stored.shape, ", "),
           torch_dtype(saved.dtype).name, fmt::join(chunk.shape, ", "), kRemedy);
  Shape inside = piece.offset;
  for (size_t dim = 0; dim < inside.size(); ++dim) inside[dim] -= chunk.offset[dim];
  copy_stored(stored, inside, destination);
}

void DcpReader::read_box(const std::string& name, const Shape& global_shape, const Box& box,
                         const Tensor& destination) const {
  const DcpTensor& saved = tensor(name);
  TI_CHECK(saved.shape == global_shape,
           "{} has shape [{}], but [{}] is expected. Check that the checkpoint is of this model.", where(name),
           fmt::join(saved.shape, ", "), fmt::join(global_shape, ", "));
  const Dtype wanted = destination.scalar_type();
  TI_CHECK(saved.dtype == wanted || (c10::isFloatingType(saved.dtype) && c10::isFloatingType(wanted)),
           "{} has dtype {}, but {} is expected. Check that the checkpoint is of this model.", where(name),
           torch_dtype(saved.dtype).name, torch_dtype(wanted).name);
  TI_ASSERT(lies_inside(box, global_shape) && destination.sizes() == at::IntArrayRef(box.shape),
            "{} does not fit into the destination of {}", to_string(box), name);

  std::vector<Box> pieces, chunks;
  int64_t covered = 0;
  for (const Box& chunk : saved.chunks) {
    if (const auto piece = intersection(box, chunk)) {
      pieces.push_back(*piece);
      chunks.push_back(chunk);
      covered += volume(piece->shape);
    }
  }
  TI_CHECK(covered == volume(box.shape) && !find_overlap(pieces), "{} has chunks that do not cover {} exactly once. {}",
           where(name), to_string(box), kRemedy);
  for (size_t i = 0; i < pieces.size(); ++i) {
    Box target = pieces[i];
    for (size_t dim = 0; dim < box.shape.size(); ++dim) target.offset[dim] -= box.offset[dim];
    copy_piece(name, saved, chunks[i], pieces[i], box_of(destination, target));
  }
}

Tensor DcpReader::read_tensor(const std::string& name) const {
  const DcpTensor& saved = tensor(name);
  const Tensor whole = at::empty(saved.shape, at::TensorOptions(saved.dtype));
  read_box(name, saved.shape, {Shape(saved.shape.size(), 0), saved.shape}, whole);
  return whole;
}

PickleValue DcpReader::read_object(const std::string& name) const {
  TI_CHECK(std::holds_alternative<DcpObject>(entry(name)),
           "{} is a tensor, but another Python value is expected. Check that the checkpoint is of this model.",
           where(name));
  return TorchArchive(bytes_at({name, std::nullopt}), where(name)).value();
}

void DcpReader::verify(const std::string& name) const {
  if (std::holds_alternative<DcpObject>(entry(name))) {
    TorchArchive(bytes_at({name, std::nullopt}), where(name)).verify();
    return;
  }
  for (const Box& chunk : tensor(name).chunks) {
    if (volume(chunk.shape) > 0) TorchArchive(bytes_at({name, chunk.offset}), where(name)).verify();
  }
}

}  // namespace titanium::checkpoint
