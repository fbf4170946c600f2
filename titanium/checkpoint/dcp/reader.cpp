#include "titanium/checkpoint/dcp/reader.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <set>

#include "titanium/base/error.h"
#include "titanium/base/terminal/progress.h"
#include "titanium/base/text/nearest_name.h"
#include "titanium/base/text/printable.h"
#include "titanium/checkpoint/boxes.h"
#include "titanium/checkpoint/dcp/archive_edges.h"
#include "titanium/checkpoint/stored_copy.h"
#include "titanium/checkpoint/torch_file/archive.h"
#include "titanium/checkpoint/torch_file/dtype.h"
#include "titanium/remote/transport/url.h"

namespace titanium::checkpoint {
namespace {

constexpr std::string_view kRemedy = "The checkpoint is damaged or incomplete: copy it again, or use another step.";
constexpr int64_t kLargestGap = 1 << 20;  // bytes that are rather read than skipped

DcpMetadata open_metadata(const std::filesystem::path& folder, Sidecar& sidecar) {
  std::error_code ignored;
  TI_CHECK(remote::is_url(folder.string()) || std::filesystem::is_directory(folder, ignored),
           "checkpoint folder {} does not exist. Check the path.", folder.string());
  const std::filesystem::path path = folder / ".metadata", beside = folder / kSidecarFile;
  TI_CHECK(remote::exists(path.string()),
           "folder {} has no file .metadata, so it is no distributed checkpoint, or writing it was interrupted. Use "
           "another step.",
           folder.string());
  const MappedFile file(path, "checkpoint metadata");
  const bool has_sidecar = remote::exists(beside.string());
  if (has_sidecar) {
    sidecar = parse_sidecar(MappedFile(beside, "checkpoint file").bytes(), beside.string());
    const auto found = sidecar.sums.find(".metadata");
    TI_CHECK(
        found != sidecar.sums.end() && found->second == sum_of(".metadata", file.bytes()),
        "{} does not have the checksum that {} says. The checkpoint is damaged: copy it again, use another step, or "
        "remove {} if another program has written into the folder.",
        path.string(), kSidecarFile, kSidecarFile);
  }
  return parse_dcp_metadata(file.bytes(), path.string());
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (size_t dim = shape.size(); dim > 1; --dim) strides[dim - 2] = strides[dim - 1] * shape[dim - 1];
  return strides;
}

// Elements [begin, end) of a contiguous tensor, from the first to the last one of the box.
std::pair<int64_t, int64_t> reach(const Box& box, const Shape& strides) {
  int64_t begin = 0, end = 1;
  for (size_t dim = 0; dim < strides.size(); ++dim) {
    begin += box.offset[dim] * strides[dim];
    end += (box.offset[dim] + box.shape[dim] - 1) * strides[dim];
  }
  return {begin, end};
}

// Cuts the box where there is much between two of its rows in a contiguous tensor.
std::vector<Box> without_gaps(const Box& box, const Shape& strides, int64_t element_size) {
  size_t cut = 0;  // number of dims to cut
  int64_t inner = 1;
  for (size_t dim = strides.size(); dim > 0; --dim) {
    const bool has_gaps = box.shape[dim - 1] > 1 && (strides[dim - 1] - inner) * element_size >= kLargestGap;
    if (has_gaps) cut = std::max(cut, dim);
    inner += (box.shape[dim - 1] - 1) * strides[dim - 1];
  }
  std::vector<Box> boxes = {box};
  for (size_t dim = 0; dim < cut; ++dim) {
    std::vector<Box> cuts;
    for (Box& part : boxes) {
      part.shape[dim] = 1;
      for (int64_t i = 0; i < box.shape[dim]; ++i, ++part.offset[dim]) cuts.push_back(part);
    }
    boxes = std::move(cuts);
  }
  return boxes;
}

Box relative_to(Box box, const Shape& origin) {
  for (size_t dim = 0; dim < origin.size(); ++dim) box.offset[dim] -= origin[dim];
  return box;
}

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

}  // namespace

// The elements of a chunk in a file.
struct DcpReader::Place {
  std::string file;
  uint64_t begin = 0;
  bool contiguous = true;
  std::optional<uint32_t> crc;  // of all of them
};

// An archive whose bytes were not looked at.
struct DcpReader::Parsed {
  std::shared_ptr<const void> owner;  // of the bytes that `tensor` names
  uint64_t begin = 0;                 // of the archive in its file
  const std::byte* first = nullptr;   // its first byte here
  StoredTensor tensor;

  uint64_t place_of(const std::byte* byte) const { return begin + static_cast<uint64_t>(byte - first); }
};

struct DcpReader::Plan {
  struct Strided {
    DcpIndex index;
    Box piece;  // of the chunk
    Tensor destination;
  };
  std::vector<Stretch> stretches;
  std::vector<Strided> strided;  // chunks that lie in a file in another order than row by row

  int64_t bytes() const {
    uint64_t sum = 0;
    for (const Stretch& stretch : stretches) sum += stretch.end - stretch.begin;
    return static_cast<int64_t>(sum);
  }
  // Every stretch tells what was read of it.
  void report_to(Progress& progress) {
    for (Stretch& stretch : stretches) {
      stretch.use = [use = std::move(stretch.use), &progress](uint64_t position, std::span<const std::byte> bytes) {
        use(position, bytes);
        progress.add(static_cast<int64_t>(bytes.size()));
      };
    }
  }
};

DcpReader::DcpReader(const std::filesystem::path& folder)
    : folder_(folder), metadata_(open_metadata(folder, sidecar_)) {}

std::string DcpReader::where(const std::string& name) const {
  return fmt::format("{}: \"{}\"", folder_.string(), printable(name));
}

const DcpEntry& DcpReader::entry(const std::string& name) const {
  const auto found = metadata_.entries.find(name);
  if (found != metadata_.entries.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, entry] : metadata_.entries) names.push_back(known);
  const auto near = nearest_name(name, names);
  throw Error(fmt::format("{} has nothing named \"{}\"{}. Check that the checkpoint is of this model.",
                          folder_.string(), name,
                          near ? fmt::format(" (the nearest is \"{}\")", printable(*near)) : ""));
}

const DcpTensor& DcpReader::tensor(const std::string& name) const {
  const auto* found = std::get_if<DcpTensor>(&entry(name));
  TI_CHECK(found != nullptr, "{} is not a tensor but another Python value. Check that the checkpoint is of this model.",
           where(name));
  return *found;
}

uint64_t DcpReader::size_of(const std::string& name, const std::string& file) const {
  const std::lock_guard lock(mutex_);
  if (const auto found = sizes_.find(file); found != sizes_.end()) return found->second;
  std::error_code error;
  const std::filesystem::path path = folder_ / file;
  uint64_t size = 0;
  if (remote::is_url(path.string())) {
    try {
      size = static_cast<uint64_t>((objects_[file] = remote::open_bytes(path.string()))->size());
    } catch (const remote::NotFound&) {
      error = std::make_error_code(std::errc::no_such_file_or_directory);
    }
  } else {
    size = std::filesystem::file_size(path, error);
  }
  TI_CHECK(error != std::errc::no_such_file_or_directory, "{} lies in {}, which is missing. {}", where(name),
           printable(file), kRemedy);
  TI_CHECK(!error, "{} lies in {}, which cannot be read: {}. Check the file and its permissions.", where(name),
           printable(file), error.message());
  return sizes_[file] = size;
}

const DcpLocation& DcpReader::location(const DcpIndex& index) const {
  const auto found = metadata_.locations.find(index);
  TI_CHECK(found != metadata_.locations.end(), "{} has a chunk at [{}] that lies in no file. {}", where(index.name),
           fmt::join(index.offset.value_or(Shape()), ", "), kRemedy);
  const DcpLocation& location = found->second;
  TI_CHECK(location.transforms.empty(),
           "{} was saved with the extension {}, which Titanium does not have. Save it without extensions.",
           where(index.name), printable(fmt::format("{}", fmt::join(location.transforms, ", "))));
  const auto offset = static_cast<uint64_t>(location.offset), length = static_cast<uint64_t>(location.length);
  const uint64_t size = size_of(index.name, location.file);
  TI_CHECK(offset <= size && length <= size - offset, "{} takes bytes {} to {} of {}, which has only {}. {}",
           where(index.name), offset, offset + length, printable(location.file), size, kRemedy);
  if (sidecar_.sums.empty()) return location;
  const auto sum = sidecar_.sums.find(location.file);
  TI_CHECK(sum != sidecar_.sums.end() && sum->second.size == size,
           "{} lies in {}, which has {} bytes, but {} says {}. {}", where(index.name), location.file, size,
           kSidecarFile, sum != sidecar_.sums.end() ? fmt::format("{}", sum->second.size) : "nothing", kRemedy);
  return location;
}

DcpReader::Parsed DcpReader::parse(const DcpIndex& index) const {
  const DcpLocation& place = location(index);
  const auto offset = static_cast<uint64_t>(place.offset), length = static_cast<uint64_t>(place.length);
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
  if (remote::is_url(folder_.string())) {
    const auto edges = std::make_shared<ArchiveEdges>(object(place.file), place.offset, place.length);
    bytes = edges->bytes();
    owner = edges;
  } else {
    const auto file = mapped(place.file);
    bytes = file->bytes();
    TI_CHECK(offset <= bytes.size() && length <= bytes.size() - offset, "{} has become shorter. {}",
             (folder_ / place.file).string(), kRemedy);
    bytes = bytes.subspan(offset, length);
    owner = file;
  }
  TorchArchive archive(bytes, where(index.name));
  archive.verify_head();
  StoredTensor stored = archive.tensor(archive.value());
  return {.owner = std::move(owner), .begin = offset, .first = bytes.data(), .tensor = std::move(stored)};
}

std::shared_ptr<const MappedFile> DcpReader::mapped(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  auto& file = files_[name];
  if (!file) {
    file = std::make_shared<MappedFile>(folder_ / name, "checkpoint file");
    ::madvise(file->bytes().data(), file->bytes().size(), MADV_RANDOM);  // a page here and there is all that is parsed
  }
  return file;
}

// One whose size is known.
const remote::ByteSource& DcpReader::object(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return *objects_.at(name);
}

Tensor DcpReader::read_archive(const DcpIndex& index) const {
  const DcpLocation& place = location(index);
  const Tensor content = at::empty({place.length}, at::TensorOptions(at::kByte));
  auto* memory = static_cast<std::byte*>(content.mutable_data_ptr());
  const auto begin = static_cast<uint64_t>(place.offset);
  const std::vector<Stretch> stretches = {
      {.file = place.file,
       .what = fmt::format("\"{}\"", printable(index.name)),
       .begin = begin,
       .end = begin + content.nbytes(),
       .crc = {},
       .use = [&](uint64_t at, std::span<const std::byte> bytes) { std::ranges::copy(bytes, memory + at); }}};
  const auto problems = read_stretches(folder_, stretches, sidecar_.sums, {});
  if (!problems.empty()) throw Error(problems.front().message);
  return content;
}

DcpReader::Place DcpReader::place_of(const std::string& name, const DcpTensor& saved, const Box& chunk) const {
  const DcpLocation& place = location({name, chunk.offset});
  const auto begin = static_cast<uint64_t>(place.offset);
  if (!sidecar_.sums.empty()) {  // we wrote it, so we know where the elements are without reading what is around them
    TorchTensorArchive archive(saved.dtype, chunk.shape);
    const uint64_t head = archive.head().size(), length = head + archive.data_size() + archive.tail(0).size();
    if (length == static_cast<uint64_t>(place.length)) return {.file = place.file, .begin = begin + head, .crc = {}};
  }
  const Parsed parsed = parse({name, chunk.offset});
  const StoredTensor& stored = parsed.tensor;
  TI_CHECK(stored.dtype == saved.dtype && stored.shape == chunk.shape,
           "{}: the chunk at [{}] is stored as {} of shape [{}], but the metadata say {} of shape [{}]. {}",
           where(name), fmt::join(chunk.offset, ", "), torch_dtype(stored.dtype).name, fmt::join(stored.shape, ", "),
           torch_dtype(saved.dtype).name, fmt::join(chunk.shape, ", "), kRemedy);
  Place found{.file = place.file, .begin = parsed.place_of(stored.data), .crc = {}};
  const auto elements = static_cast<uint64_t>(volume(stored.shape));
  for (size_t dim = 0; dim < stored.shape.size(); ++dim) {
    const bool matters = elements > 0 && stored.shape[dim] > 1;
    if (matters && stored.strides[dim] != contiguous_strides(stored.shape)[dim]) found.contiguous = false;
  }
  const bool is_whole_record = stored.storage.bytes.size() == elements * c10::elementSize(stored.dtype);
  if (is_whole_record && stored.storage.crc != 0) found.crc = stored.storage.crc;
  return found;
}

void DcpReader::check_request(const DcpRequest& request) const {
  const DcpTensor& saved = tensor(request.name);
  TI_CHECK(saved.shape == request.global_shape,
           "{} has shape [{}], but [{}] is expected. Check that the checkpoint is of this model.", where(request.name),
           fmt::join(saved.shape, ", "), fmt::join(request.global_shape, ", "));
  const Dtype wanted = request.destination.scalar_type();
  TI_CHECK(saved.dtype == wanted || (c10::isFloatingType(saved.dtype) && c10::isFloatingType(wanted)),
           "{} has dtype {}, but {} is expected. Check that the checkpoint is of this model.", where(request.name),
           torch_dtype(saved.dtype).name, torch_dtype(wanted).name);
  TI_ASSERT(lies_inside(request.box, request.global_shape) &&
                request.destination.sizes() == at::IntArrayRef(request.box.shape),
            "{} does not fit into the destination of {}", to_string(request.box), request.name);
}

void DcpReader::plan(const DcpRequest& request, Plan& plan) const {
  check_request(request);
  std::vector<Box> pieces, chunks;
  for (const Box& chunk : tensor(request.name).chunks) {
    if (const auto piece = intersection(request.box, chunk)) {
      pieces.push_back(*piece);
      chunks.push_back(chunk);
    }
  }
  TI_CHECK(cover_exactly(pieces, request.box.shape), "{} has chunks that do not cover {} exactly once. {}",
           where(request.name), to_string(request.box), kRemedy);
  for (size_t i = 0; i < pieces.size(); ++i) plan_chunk(request, chunks[i], pieces[i], plan);
}

void DcpReader::plan_chunk(const DcpRequest& request, const Box& chunk, const Box& piece, Plan& plan) const {
  const Place place = place_of(request.name, tensor(request.name), chunk);
  const Tensor destination = box_of(request.destination, relative_to(piece, request.box.offset));
  const Box inside = relative_to(piece, chunk.offset);
  if (!place.contiguous) {
    plan.strided.push_back({{request.name, chunk.offset}, inside, destination});
    return;
  }
  const Dtype dtype = tensor(request.name).dtype;
  const uint64_t element_size = c10::elementSize(dtype);
  const Shape strides = contiguous_strides(chunk.shape);
  for (const Box& part : without_gaps(inside, strides, static_cast<int64_t>(element_size))) {
    const auto [first, last] = reach(part, strides);
    const Tensor target = box_of(destination, relative_to(part, inside.offset));
    const auto use = [dtype, element_size, first, part, target, shape = chunk.shape](uint64_t position, auto bytes) {
      copy_range(dtype, shape, first + static_cast<int64_t>(position / element_size), bytes, part, target);
    };
    plan.stretches.push_back({.file = place.file,
                              .what = fmt::format("\"{}\"", printable(request.name)),
                              .begin = place.begin + static_cast<uint64_t>(first) * element_size,
                              .end = place.begin + static_cast<uint64_t>(last) * element_size,
                              .unit = element_size,
                              .crc = part.shape == chunk.shape ? place.crc : std::nullopt,
                              .use = use});
  }
}

// Where another program has written into a bucket, two requests tell where a chunk lies; many are made at a time.
DcpReader::Plan DcpReader::plan_all(std::span<const DcpRequest> requests) const {
  constexpr size_t kAtATime = 16;
  const bool asks = remote::is_url(folder_.string()) && sidecar_.sums.empty();
  std::vector<Plan> plans(requests.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < requests.size(); i = next++) plan(requests[i], plans[i]);
  };
  std::vector<std::future<void>> others;
  for (size_t i = 1; asks && i < std::min(kAtATime, requests.size()); ++i)
    others.push_back(std::async(std::launch::async, work));
  work();
  for (auto& other : others) other.get();
  Plan all;
  for (Plan& one : plans) {
    std::ranges::move(one.stretches, std::back_inserter(all.stretches));
    std::ranges::move(one.strided, std::back_inserter(all.strided));
  }
  return all;
}

void DcpReader::read(std::span<const DcpRequest> requests, int threads, const std::string& label) const {
  Plan all = plan_all(requests);
  StretchOptions options{.threads = threads, .keep_going = false, .stream = {}};
  for (const DcpRequest& request : requests) {
    const c10::Device device = request.destination.device();
    if (!device.is_cpu()) options.stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  }
  std::optional<Progress> progress;
  if (!label.empty()) {
    progress.emplace(label, all.bytes(), ProgressUnit::kBytes);
    all.report_to(*progress);
  }
  const auto problems = read_stretches(folder_, all.stretches, sidecar_.sums, options);
  if (!problems.empty()) throw Error(problems.front().message);
  for (const auto& [index, piece, destination] : all.strided) {
    const Tensor content = read_archive(index);
    const TorchArchive archive(bytes_of(content), where(index.name));
    archive.verify();
    copy_stored(archive.tensor(archive.value()), piece.offset, destination);
  }
}

void DcpReader::read_box(const std::string& name, const Shape& global_shape, const Box& box,
                         const Tensor& destination) const {
  read(std::vector<DcpRequest>{{name, global_shape, box, destination}});
}

PickleValue DcpReader::read_object(const std::string& name) const {
  TI_CHECK(std::holds_alternative<DcpObject>(entry(name)),
           "{} is a tensor, but another Python value is expected. Check that the checkpoint is of this model.",
           where(name));
  const Tensor content = read_archive({name, std::nullopt});
  const TorchArchive archive(bytes_of(content), where(name));
  archive.verify();
  return archive.value();
}

std::vector<DcpIndex> DcpReader::indexes() const {
  std::vector<DcpIndex> indexes;
  for (const auto& [name, entry] : metadata_.entries) {
    const auto* tensor = std::get_if<DcpTensor>(&entry);
    if (tensor == nullptr) {
      indexes.push_back({name, std::nullopt});
      continue;
    }
    for (const Box& chunk : tensor->chunks) {
      if (volume(chunk.shape) > 0) indexes.push_back({name, chunk.offset});
    }
  }
  return indexes;
}

Stretch DcpReader::stored_bytes(const DcpIndex& index) const {
  const DcpLocation& place = location(index);
  Stretch stretch{.file = place.file, .what = fmt::format("\"{}\"", printable(index.name)), .crc = {}, .use = {}};
  if (!index.offset) {
    const Tensor content = read_archive(index);
    TorchArchive(bytes_of(content), where(index.name)).verify();
    return stretch;
  }
  const Parsed parsed = parse(index);
  const ZipArchive::Record& storage = parsed.tensor.storage;
  stretch.begin = parsed.place_of(storage.bytes.data());
  stretch.end = stretch.begin + storage.bytes.size();
  if (storage.crc != 0) stretch.crc = storage.crc;
  return stretch;
}

std::vector<FileProblem> DcpReader::verify(int threads) const {
  std::map<std::string, std::string> problems;  // by file: the first one tells enough
  std::vector<Stretch> stretches;
  for (const auto& [name, entry] : metadata_.entries) {
    const auto* tensor = std::get_if<DcpTensor>(&entry);
    if (tensor == nullptr) continue;
    if (cover_exactly(tensor->chunks, tensor->shape)) continue;
    problems.emplace(".metadata",
                     fmt::format("{} has chunks that do not cover it exactly once. {}", where(name), kRemedy));
  }
  for (const DcpIndex& index : indexes()) {
    const auto found = metadata_.locations.find(index);
    const std::string file = found == metadata_.locations.end() ? ".metadata" : found->second.file;
    if (problems.contains(file)) continue;
    try {
      location(index);
      if (sidecar_.sums.empty()) stretches.push_back(stored_bytes(index));
    } catch (const Error& error) {
      problems.emplace(file, error.what());
    }
  }
  for (const auto& [file, sum] : sidecar_.sums) {
    if (!problems.contains(file))
      stretches.push_back({.file = file, .what = {}, .end = sum.size, .crc = {}, .use = {}});
  }
  const StretchOptions options{.threads = threads, .keep_going = true, .stream = {}};
  for (auto& [file, message] : read_stretches(folder_, stretches, sidecar_.sums, options)) {
    problems.emplace(file, message);
  }
  std::vector<FileProblem> found;
  for (const auto& [file, message] : problems) found.push_back({file, message});
  return found;
}

}  // namespace titanium::checkpoint
