// A file whose bytes the program gives the plug-in.
#pragma once

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>

#include <algorithm>
#include <memory>

#include "titanium/data/plugin/arrow_functions.h"

namespace titanium::data::plugin {

class ProgramFile : public arrow::io::RandomAccessFile {
 public:
  explicit ProgramFile(const TitaniumBytes& bytes) : bytes_(bytes) {}

  void expect(int64_t begin, int64_t end) { bytes_.expect(bytes_.source, begin, end); }

  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }
  arrow::Result<int64_t> Tell() const override { return position_; }
  arrow::Status Seek(int64_t position) override {
    position_ = position;
    return arrow::Status::OK();
  }
  arrow::Result<int64_t> GetSize() override { return bytes_.size; }

  arrow::Result<int64_t> ReadAt(int64_t position, int64_t count, void* out) override {
    if (position < 0 || count < 0) return arrow::Status::IOError("the file is damaged: it points to nowhere");
    count = std::min(count, std::max(bytes_.size - position, int64_t{0}));
    if (count > 0 && bytes_.read(bytes_.source, position, count, static_cast<char*>(out)) != 0)
      return arrow::Status::IOError("it cannot be read");
    return count;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position, int64_t count) override {
    const int64_t there = std::min(count, std::max(bytes_.size - position, int64_t{0}));
    if (position < 0 || there < 0) return arrow::Status::IOError("the file is damaged: it points to nowhere");
    ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::Buffer> buffer, arrow::AllocateBuffer(there));
    ARROW_ASSIGN_OR_RAISE(const int64_t got, ReadAt(position, there, buffer->mutable_data()));
    return got == there ? buffer : arrow::SliceBuffer(buffer, 0, got);
  }
  arrow::Result<int64_t> Read(int64_t count, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const int64_t got, ReadAt(position_, count, out));
    position_ += got;
    return got;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t count) override {
    ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::Buffer> buffer, ReadAt(position_, count));
    position_ += buffer->size();
    return buffer;
  }

 private:
  const TitaniumBytes bytes_;
  int64_t position_ = 0;
  bool closed_ = false;
};

}  // namespace titanium::data::plugin
