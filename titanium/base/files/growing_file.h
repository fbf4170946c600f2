// Files that grow while a program runs, such as logs and curves, without which it can go on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace titanium {

// Appends, and survives a disk that is full for a while. What cannot be written is kept, up to kMostKept bytes, and is
// tried again with the next call; what comes when no room is left is lost. The first failure and its end are logged,
// once each. Not thread-safe.
class GrowingFile {
 public:
  static constexpr size_t kMostKept = 1 << 20;

  // Makes the file if it is missing, else goes on at its end. Throws Error when it cannot be opened; `remedy` ends that
  // sentence ("Check job.dump_folder and its permissions."). After a loss `describe_loss` says what stands in the file
  // in place of the lost bytes; without it nothing does.
  using DescribeLoss = std::function<std::string(int64_t lost_bytes)>;
  GrowingFile(const std::filesystem::path& path, std::string_view remedy, DescribeLoss describe_loss = nullptr);
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;
  // Tries a last time, and logs what stays unwritten.
  ~GrowingFile();

  // `record` is in the file when this returns, unless it is kept or lost. Never throws.
  void append(std::string_view record) noexcept;

 private:
  // Writes as much as possible from the front of `bytes`, which it shortens; true when all is written.
  bool write(std::string_view& bytes);
  // Writes what was kept; true when nothing is left.
  bool write_kept();
  void lose(size_t bytes);
  void begin_of_trouble(int error);
  void end_of_trouble();

  std::filesystem::path path_;
  DescribeLoss describe_loss_;
  int file_ = -1;
  std::string kept_;
  int64_t lost_ = 0;     // since the file last said so
  int64_t missing_ = 0;  // in all since the trouble began
  bool in_trouble_ = false;
};

}  // namespace titanium
