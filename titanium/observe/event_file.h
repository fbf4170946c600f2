// Writes scalars and pictures as TensorBoard reads them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "titanium/base/files/growing_file.h"
#include "titanium/observe/scalar_writer.h"

namespace titanium::observe {

// One events.out.tfevents.* file. TensorBoard may read it while it grows.
class EventFile : public ScalarWriter {
 public:
  // Makes `folder`. Throws Error when the file cannot be made.
  explicit EventFile(const std::filesystem::path& folder);

  // Values are stored as float32. They are in the file when this returns: a run that is killed keeps its curves. While
  // the disk is full the run goes on, and they follow later (base/files/growing_file.h).
  void write(int64_t step, std::span<const Scalar> scalars) override;
  // Each under the tag "validation_images/<number>", described by its caption.
  void write_images(int64_t step, std::span<const ShownImage> images) override;

  const std::filesystem::path& path() const { return path_; }

 private:
  void write_record(std::string_view event);

  std::filesystem::path path_;
  std::unique_ptr<GrowingFile> file_;
};

// CRC-32C (Castagnoli), as the records of event files carry it.
uint32_t crc32c(std::string_view bytes);

}  // namespace titanium::observe
