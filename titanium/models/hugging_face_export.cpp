#include "titanium/models/hugging_face_export.h"

#include <c10/core/GradMode.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/base/log.h"
#include "titanium/checkpoint/boxes.h"
#include "titanium/checkpoint/io/temporary_file.h"
#include "titanium/checkpoint/safetensors/reader.h"
#include "titanium/checkpoint/sidecar.h"
#include "titanium/checkpoint/step_folders.h"
#include "titanium/models/hugging_face_assets.h"

namespace titanium::models {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBlockBytes = 32 << 20;  // of a parameter that are in host memory at a time
constexpr const char* kSingle = ".safetensors";
constexpr const char* kIndex = ".safetensors.index.json";

class OutputFile {
 public:
  OutputFile(fs::path path, int flags) : path_(std::move(path)), file_(::open(path_.c_str(), flags | O_CLOEXEC, 0644)) {
    check(file_ >= 0, errno);
  }
  ~OutputFile() { ::close(file_); }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write_at(uint64_t position, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(position));
      if (written < 0 && errno == EINTR) continue;
      check(written > 0, written < 0 ? errno : ENOSPC);
      bytes = bytes.subspan(static_cast<size_t>(written));
      position += static_cast<uint64_t>(written);
    }
  }
  // Reserves the space, so that a full disk is noticed before the work.
  void resize(uint64_t size) const {
    const auto length = static_cast<off_t>(size);
    if (length == 0 || ::fallocate(file_, 0, 0, length) == 0) return;
    check(errno == EOPNOTSUPP || errno == ENOSYS, errno);
    check(::ftruncate(file_, length) == 0, errno);
  }
  void sync() const { check(::fsync(file_) == 0, errno); }

 private:
  void check(bool good, int error) const {
    TI_CHECK(good, "{} cannot be written: {}. Check permissions and free space.", path_.string(), std::strerror(error));
  }

  fs::path path_;
  int file_;
};

// Cuts contiguous bytes of a box of a tensor that begins at byte `begin` of the file into the stretches that are
// contiguous there.
void cut_box(uint64_t begin, const Shape& shape, const Box& box, const Tensor& bytes,
             const HuggingFaceExport::UseBytes& use) {
  size_t inner = shape.size();
  int64_t stretch = bytes.element_size();
  for (; inner > 1 && box.shape[inner - 1] == shape[inner - 1]; --inner) stretch *= shape[inner - 1];
  const auto step = static_cast<size_t>(stretch * box.shape[inner - 1]);
  std::span<const std::byte> rest(static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes());
  Shape index(inner - 1, 0);
  for (; !rest.empty(); rest = rest.subspan(step)) {
    int64_t position = 0;
    for (size_t dim = 0; dim < inner; ++dim) {
      position = position * shape[dim] + box.offset[dim] + (dim + 1 < inner ? index[dim] : 0);
    }
    use(begin + static_cast<uint64_t>(position * stretch), rest.first(step));
    for (size_t dim = inner - 1; dim > 0 && ++index[dim - 1] == box.shape[dim - 1]; --dim) index[dim - 1] = 0;
  }
}

// Tensors of the model to the files of the assets' index; empty if it does not name exactly these, or has the name that
// makes a folder whole for one file of several: Note [Whole or not there, in a bucket].
std::map<std::string, std::string> files_of_index(const fs::path& index, const std::vector<std::string>& names) {
  std::error_code ignored;
  if (!fs::is_regular_file(index, ignored)) return {};
  auto files = checkpoint::read_safetensors_index(index);
  std::set<std::string> used;
  for (const auto& [name, file] : files) used.insert(file);
  const bool matches = files.size() == names.size() &&
                       std::ranges::all_of(names, [&](const std::string& name) { return files.contains(name); }) &&
                       (used.size() == 1 || std::ranges::none_of(used, checkpoint::is_marker));
  return matches ? files : std::map<std::string, std::string>();
}

// A config.json of diffusers says the class of its model, and diffusers looks for files of another name.
std::string weights_name(const std::string& config_json) {
  return nlohmann::json::parse(config_json).contains("_class_name") ? "diffusion_pytorch_model" : "model";
}

}  // namespace

HuggingFaceExport::HuggingFaceExport(const Model& model, Dtype dtype, fs::path assets, uint64_t shard_bytes)
    : dtype_(dtype),
      assets_(std::move(assets)),
      config_(hugging_face_of(model).config_json(dtype)),
      name_(weights_name(config_)) {
  plan(model, shard_bytes);
}

void HuggingFaceExport::plan(const Model& model, uint64_t shard_bytes) {
  std::vector<HuggingFacePiece> tensors;  // in the order of the parameters; one of several that share a tensor
  std::vector<std::string> names;
  std::set<std::string> known;
  for (const auto& [fqn, shape] : model.stored_tensors()) {
    for (const HuggingFacePiece& piece : pieces_[fqn] = hugging_face_of(model).pieces(fqn, shape)) {
      if (!known.insert(piece.name).second) continue;
      tensors.push_back(piece);
      names.push_back(piece.name);
    }
  }
  const auto given = files_of_index(assets_ / (name_ + kIndex), names);
  std::map<std::string, size_t> numbers;
  uint64_t size = 0;
  for (const HuggingFacePiece& tensor : tensors) {
    const uint64_t bytes = static_cast<uint64_t>(volume(tensor.shape())) * c10::elementSize(dtype_);
    if (given.empty()) {
      if (files_.empty() || size + bytes > shard_bytes) files_.emplace_back(), size = 0;
      size += bytes;
    } else if (numbers.emplace(given.at(tensor.name), files_.size()).second) {
      files_.push_back({given.at(tensor.name), {}});
    }
    const size_t number = given.empty() ? files_.size() - 1 : numbers.at(given.at(tensor.name));
    auto& entries = files_[number].header.entries;
    const uint64_t begin = entries.empty() ? 0 : entries.back().end;
    entries.push_back({tensor.name, dtype_, tensor.shape(), begin, begin + bytes});
    places_[tensor.name] = {number, begin};
  }
  for (size_t i = 0; i < files_.size(); ++i) {
    File& file = files_[i];
    if (given.empty()) file.name = fmt::format("{}-{:05}-of-{:05}.safetensors", name_, i + 1, files_.size());
    file.header.metadata = {{"format", "pt"}};
    file.header.data_offset = checkpoint::format_safetensors_header(file.header).size();
  }
  if (files_.size() == 1) files_.front().name = name_ + kSingle;
  for (auto& [name, place] : places_) place.begin += files_[place.file].header.data_offset;
}

std::string HuggingFaceExport::index_json() const {
  std::map<std::string, std::string> weight_map;
  uint64_t total = 0;
  for (const File& file : files_) {
    for (const auto& entry : file.header.entries) weight_map[entry.name] = file.name;
    total += file.header.entries.back().end;
  }
  return nlohmann::ordered_json({{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}}).dump(2) + "\n";
}

void HuggingFaceExport::create_files(const fs::path& folder) const {
  std::error_code error;
  fs::create_directories(folder, error);
  TI_CHECK(!error, "{} cannot be made: {}. Check permissions and free space.", folder.string(), error.message());
  for (const File& planned : files_) {
    const OutputFile file(folder / planned.name, O_WRONLY | O_CREAT | O_TRUNC);
    const std::string text = checkpoint::format_safetensors_header(planned.header);
    file.write_at(0, std::as_bytes(std::span(text)));
    file.resize(planned.header.data_offset + planned.header.entries.back().end);
  }
  if (const auto index = index_file()) write_file_atomically(folder / index->first, index->second);
  write_file_atomically(folder / "config.json", complete_config_json(config_, assets_));
  copy_tokenizer_files(assets_, folder);
}

void HuggingFaceExport::write(const fs::path& folder, const std::string& fqn, const Box& box,
                              const Tensor& part) const {
  if (part.numel() == 0) return;
  const c10::NoGradGuard no_grad;
  warn_if_left_out(fqn, part);
  const auto& pieces = pieces_.at(fqn);
  if (pieces.empty()) return;
  std::map<size_t, OutputFile> open;
  for_each_run(pieces, box, part, [&](const HuggingFacePiece& piece, const Box& theirs, const Tensor& view) {
    const size_t number = places_.at(piece.name).file;
    const OutputFile& file = open.try_emplace(number, folder / files_[number].name, O_WRONLY).first->second;
    for_each_stretch(piece, theirs, view,
                     [&](uint64_t position, std::span<const std::byte> bytes) { file.write_at(position, bytes); });
  });
}

void HuggingFaceExport::for_each_stretch(const HuggingFacePiece& piece, const Box& theirs, const Tensor& view,
                                         const UseBytes& use) const {
  const int64_t bytes_of_row = view.numel() / view.size(0) * static_cast<int64_t>(c10::elementSize(dtype_));
  const int64_t rows_at_a_time = std::max<int64_t>(kBlockBytes / bytes_of_row, 1);
  for (int64_t row = 0; row < view.size(0); row += rows_at_a_time) {
    Box rows = theirs;
    rows.offset[0] += row;
    rows.shape[0] = std::min(rows_at_a_time, view.size(0) - row);
    const Tensor bytes = view.narrow(0, row, rows.shape[0]).to(dtype_).cpu().contiguous();
    cut_box(places_.at(piece.name).begin, piece.shape(), rows, bytes, use);
  }
}

void HuggingFaceExport::for_each_stretch(const Range& range, const std::string& fqn, const Box& box, const Tensor& part,
                                         const UseBytes& use) const {
  if (part.numel() == 0 || !touches(range, fqn)) return;
  const c10::NoGradGuard no_grad;
  for_each_run(pieces_.at(fqn), box, part, [&](const HuggingFacePiece& piece, const Box& theirs, const Tensor& view) {
    const Place& place = places_.at(piece.name);
    if (place.file != range.file) return;
    const auto row_at = [&](uint64_t position) {
      return static_cast<int64_t>((std::max(position, place.begin) - place.begin) / row_bytes(piece));
    };
    const int64_t first = std::max(row_at(range.begin), theirs.offset[0]);
    const int64_t last = std::min(row_at(range.end), theirs.offset[0] + theirs.shape[0]);
    if (first >= last) return;
    Box rows = theirs;
    rows.offset[0] = first;
    rows.shape[0] = last - first;
    for_each_stretch(piece, rows, view.narrow(0, first - theirs.offset[0], last - first), use);
  });
}

uint64_t HuggingFaceExport::row_bytes(const HuggingFacePiece& piece) const {
  const Shape shape = piece.shape();
  return static_cast<uint64_t>(volume(shape) / shape.at(0)) * c10::elementSize(dtype_);
}

bool HuggingFaceExport::touches(const Range& range, const std::string& fqn) const {
  return std::ranges::any_of(pieces_.at(fqn), [&](const HuggingFacePiece& piece) {
    const Place& place = places_.at(piece.name);
    const uint64_t end = place.begin + static_cast<uint64_t>(volume(piece.shape())) * c10::elementSize(dtype_);
    return place.file == range.file && place.begin < range.end && range.begin < end;
  });
}

std::vector<HuggingFaceExport::Range> HuggingFaceExport::ranges(size_t file, uint64_t bytes) const {
  const checkpoint::SafetensorsHeader& header = files_[file].header;
  std::vector<Range> ranges = {{file, header.data_offset, header.data_offset}};
  for (const auto& entry : header.entries) {
    auto rows = static_cast<uint64_t>(entry.shape.at(0));
    const uint64_t row = (entry.end - entry.begin) / rows;
    while (rows > 0) {
      const uint64_t filled = ranges.back().end - ranges.back().begin;
      if (filled > 0 && filled + row > bytes) {
        ranges.push_back({file, ranges.back().end, ranges.back().end});
        continue;
      }
      const uint64_t taken = std::clamp<uint64_t>((bytes - std::min(bytes, filled)) / row, 1, rows);
      ranges.back().end += taken * row;
      rows -= taken;
    }
  }
  return ranges;
}

void HuggingFaceExport::warn_if_left_out(const std::string& fqn, const Tensor& part) const {
  if (!pieces_.at(fqn).empty() || part.count_nonzero().item<int64_t>() == 0 || left_out_.test_and_set()) return;
  log_warning("{} has no place at Hugging Face: its numbers are left out, as are those of its like", fqn);
}

std::string HuggingFaceExport::header(size_t file) const {
  return checkpoint::format_safetensors_header(files_[file].header);
}

std::map<std::string, std::string> HuggingFaceExport::other_files() const {
  std::map<std::string, std::string> files = {{"config.json", complete_config_json(config_, assets_)}};
  for (const fs::path& path : tokenizer_files(assets_)) files[path.filename().string()] = read_file(path, "file");
  return files;
}

std::optional<std::pair<std::string, std::string>> HuggingFaceExport::index_file() const {
  if (files_.size() == 1) return std::nullopt;
  return std::pair(name_ + kIndex, index_json());
}

void HuggingFaceExport::finish(const fs::path& folder) const {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file()) OutputFile(entry.path(), O_RDONLY).sync();
  }
  checkpoint::sync_folder(folder);
}

void HuggingFaceExport::seal(const fs::path& folder) const {
  const std::string sidecar = checkpoint::format_sidecar({.facts = {}, .sums = checkpoint::sum_folder(folder)});
  checkpoint::TemporaryFile file(folder / checkpoint::kSidecarFile);
  file.write(sidecar);
  file.publish();
}

}  // namespace titanium::models
