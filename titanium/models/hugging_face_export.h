// Writes a model as a Hugging Face folder that transformers loads, from all ranks at once and without gathering.
//
//   const HuggingFaceExport out(model, at::kBFloat16, assets);            // on every rank: the same plan
//   out.create_files(folder);                                             // on one rank; then a barrier
//   for (each parameter of which this rank stores the first replica)
//     out.write(folder, parameter.fqn, parameter.shard, parameter.value); // on every rank, in any order
//   out.finish(folder);                                                   // on every rank; then a barrier
//   out.seal(folder);                                                     // on one rank
//
// The files have their final names from the beginning: who wants them whole or not at all writes into a folder of
// another name and renames it in the end. Everything that writes throws Error with the path and the reason of the
// system. At an address there is neither a place inside a file nor a rename: hugging_face_upload.h.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "titanium/checkpoint/safetensors/header.h"
#include "titanium/models/model.h"

namespace titanium::models {

constexpr uint64_t kHuggingFaceShardBytes = 5'000'000'000;

class HuggingFaceExport {
 public:
  // Decides which tensor lies where, from the parameters' global shapes. If `assets` has an index of weights with
  // exactly the model's names, its files are followed, unless one of several is called as a single one is; else files
  // are filled up to `shard_bytes`. All ranks must see the same assets. `assets` may be empty, a file or missing.
  HuggingFaceExport(const Model& model, Dtype dtype, std::filesystem::path assets,
                    uint64_t shard_bytes = kHuggingFaceShardBytes);

  // Makes the folder, the safetensors files with their headers and final sizes, the index if there are several,
  // config.json, and copies of the tokenizer's files that `assets` has. Space on the disk is reserved where the file
  // system can.
  void create_files(const std::filesystem::path& folder) const;

  // Writes a box of a parameter at its place, in the export's dtype and in Hugging Face's order of rows. `part` has the
  // box's shape and any strides, dtype and device. Several threads and processes may write at the same time. A buffer
  // that has no place there is left out, with a warning unless it is zero.
  void write(const std::filesystem::path& folder, const std::string& fqn, const Box& box, const Tensor& part) const;

  // The same for who writes the files in another way: the files, each as its name and its header, ranges of their data,
  // and what stands beside them.
  size_t file_count() const { return files_.size(); }
  const std::string& file_name(size_t file) const { return files_[file].name; }
  std::string header(size_t file) const;
  // A stretch of a file that begins and ends between rows of its tensors.
  struct Range {
    size_t file = 0;
    uint64_t begin = 0, end = 0;
  };
  // All data of the file in its order, in ranges of at most so many bytes, or of one row.
  std::vector<Range> ranges(size_t file, uint64_t bytes) const;
  bool touches(const Range& range, const std::string& fqn) const;  // whether a tensor of the parameter lies there
  // Calls `use` with the bytes of a box of a parameter that belong into the range, and their places in the file.
  using UseBytes = std::function<void(uint64_t position, std::span<const std::byte> bytes)>;
  void for_each_stretch(const Range& range, const std::string& fqn, const Box& box, const Tensor& part,
                        const UseBytes& use) const;
  void warn_if_left_out(const std::string& fqn, const Tensor& part) const;
  // The name and the content of what is no weight: config.json and the tokenizer's files. The index is apart, and
  // nothing where there is one file of weights.
  std::map<std::string, std::string> other_files() const;
  std::optional<std::pair<std::string, std::string>> index_file() const;

  // Returns when everything in the folder that this machine wrote is on the disk.
  void finish(const std::filesystem::path& folder) const;

  // Writes titanium.json with the checksums of all files, for `titanium checkpoint verify`. Reads everything once more.
  void seal(const std::filesystem::path& folder) const;

  Dtype dtype() const { return dtype_; }

 private:
  struct File {
    std::string name;
    checkpoint::SafetensorsHeader header;
  };
  struct Place {
    size_t file = 0;
    uint64_t begin = 0;  // in the file
  };
  void plan(const Model& model, uint64_t shard_bytes);
  std::string index_json() const;
  uint64_t row_bytes(const HuggingFacePiece& piece) const;  // of a row of the whole tensor
  // All bytes of the box `theirs` of their tensor; `view` has its elements.
  void for_each_stretch(const HuggingFacePiece& piece, const Box& theirs, const Tensor& view,
                        const UseBytes& use) const;

  Dtype dtype_;
  std::filesystem::path assets_;
  std::string config_;
  std::string name_;  // of the files, before their numbers
  std::vector<File> files_;
  std::map<std::string, std::vector<HuggingFacePiece>> pieces_;  // by our name
  std::map<std::string, Place> places_;                          // by theirs
  mutable std::atomic_flag left_out_;                            // that something has no place was said
};

}  // namespace titanium::models
