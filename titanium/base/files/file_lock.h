// A lock between processes and threads.
#pragma once

#include <filesystem>

namespace titanium {

// Held while it lives, by one process or thread at a time; the others wait. The file at `path` is made where it is
// missing, with its folders, and stays. A process that ends lets go of it. Throws Error when it cannot be opened.
class FileLock {
 public:
  explicit FileLock(const std::filesystem::path& path);
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

 private:
  int file_;
};

}  // namespace titanium
