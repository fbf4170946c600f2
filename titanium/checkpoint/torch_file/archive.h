// What torch.save writes and torch.load reads: a zip archive of a pickle and the bytes of the tensors' storages. Files
// from before there were archives (former_file.h) are read too.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "titanium/checkpoint/torch_file/pickle_value.h"
#include "titanium/checkpoint/torch_file/zip_archive.h"
#include "titanium/tensor/tensor.h"

namespace titanium::checkpoint {

// Where the elements of a tensor lie: element (i, j, ...) is at data + (i * strides[0] + j * strides[1] + ...)
// elements. All of them lie inside the archive. `data` need not be aligned.
struct StoredTensor {
  Dtype dtype = Dtype::Undefined;
  Shape shape;
  Shape strides;
  const std::byte* data = nullptr;
  ZipArchive::Record storage;  // `data` points into it
};

// An archive in memory, which must outlive this.
class TorchArchive {
 public:
  // Throws Error that names `what` when it is not what torch.save writes on a little-endian machine.
  TorchArchive(std::span<const std::byte> bytes, const std::string& what);

  // What was saved. Tensors in it are objects for `tensor`.
  const PickleValue& value() const { return value_; }
  // Bytes that it takes in the archive, without those of tensors.
  size_t pickle_size() const { return zip_.record("data.pkl").bytes.size(); }
  // `object` is `value()` or a part of it. Throws Error when it is no tensor or reaches beyond its storage.
  StoredTensor tensor(const PickleValue& object) const;
  // Throws Error when bytes have changed since the archive was written: all of them, or all but those of the storages.
  void verify() const { zip_.verify(); }
  // Whether all of them have checksums; torch leaves them out when told to.
  bool has_checksums() const { return zip_.has_checksums(); }
  void verify_head() const { zip_.verify("data/"); }

 private:
  std::string what_;
  ZipArchive zip_;
  PickleValue value_;
};

// A contiguous tensor as torch.save puts it into a pickle; its bytes are the record "data/<storage_name>".
PickleValue torch_tensor_value(Dtype dtype, const Shape& shape, std::string_view storage_name);

// The records of an archive that come before the bytes of tensors.
void add_torch_pickle(ZipBuilder& zip, const std::string& pickle);

// The archive of one contiguous tensor, whose bytes the caller writes between `head` and `tail`: nothing is copied.
class TorchTensorArchive {
 public:
  explicit TorchTensorArchive(Dtype dtype, const Shape& shape);
  // A multiple of 64 bytes long.
  const std::string& head() const { return head_; }
  uint64_t data_size() const { return data_size_; }
  // `crc` is the CRC-32 of the tensor's bytes. To be called once.
  std::string tail(uint32_t crc);

 private:
  uint64_t data_size_ = 0;
  ZipBuilder zip_;
  std::string head_;
};

// The archive of a value without tensors.
std::string torch_archive_of(const PickleValue& value);

}  // namespace titanium::checkpoint
