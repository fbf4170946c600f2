#include "titanium/doctor/storage_check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "titanium/base/error.h"
#include "titanium/base/files/file_descriptor.h"

namespace titanium::doctor {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double kGB = 1e9;
constexpr size_t kBlock = 1 << 20;
constexpr const char* kRemedy =
    "Check that job.dump_folder and checkpoint.folder are on a file system that all nodes share, with room and write "
    "permission.";

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

fs::path nearest_folder(fs::path folder) {
  folder = fs::absolute(folder).lexically_normal();
  std::error_code none;
  while (!fs::is_directory(folder, none) && folder != folder.root_path()) folder = folder.parent_path();
  return folder;
}

[[noreturn]] void fail(const char* action, const fs::path& path) {
  throw Error(fmt::format("cannot {} {} ({})", action, path.string(), std::strerror(errno)));
}

// Bytes per second, with the data on the disk.
double write_rate(const fs::path& path, int64_t bytes) {
  const std::vector<char> block(kBlock, 'x');
  const auto begin = Clock::now();
  const FileDescriptor file(::open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid()) fail("make", path);
  for (int64_t left = bytes; left > 0;) {
    const ssize_t written = ::write(file.get(), block.data(), std::min<size_t>(kBlock, static_cast<size_t>(left)));
    if (written < 0) fail("write", path);
    left -= written;
  }
  if (::fsync(file.get()) != 0) fail("write", path);
  return static_cast<double>(bytes) / seconds_since(begin);
}

double read_rate(const fs::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) fail("read", path);
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);  // what the page cache holds says nothing about the disk
  std::vector<char> block(kBlock);
  int64_t bytes = 0;
  const auto begin = Clock::now();
  for (ssize_t got = 0; (got = ::read(file.get(), block.data(), block.size())) != 0; bytes += got) {
    if (got < 0) fail("read", path);
  }
  return static_cast<double>(bytes) / seconds_since(begin);
}

Finding check_room(const std::string& label, const fs::path& folder, int64_t checkpoint_bytes) {
  struct statvfs room{};
  if (::statvfs(folder.c_str(), &room) != 0) fail("look at", folder);
  const double free = static_cast<double>(room.f_bavail) * static_cast<double>(room.f_frsize);
  const auto needed = static_cast<double>(checkpoint_bytes);
  Finding finding{.check = label,
                  .fact = fmt::format("{}: {:.3g} GB free", folder.string(), free / kGB),
                  .figures = {{"free_bytes", free}, {"checkpoint_bytes", needed}}};
  if (needed > 0) finding.fact += fmt::format(", a checkpoint takes {:.3g} GB", needed / kGB);
  if (free < needed) {
    finding.severity = Severity::kError;
    finding.remedy = "Make room, or move job.dump_folder to a larger file system.";
  }
  return finding;
}

Finding failed(const std::string& check, const std::string& fact) {
  return {.check = check, .severity = Severity::kError, .fact = fact, .remedy = kRemedy};
}

Finding find_renamed(const fs::path& before, const fs::path& after, int world_size,
                     std::chrono::milliseconds patience) {
  const auto begin = Clock::now();
  std::error_code none;
  ptrdiff_t files = -1;
  do {
    if (fs::exists(after, none) && !fs::exists(before, none)) {
      files = std::distance(fs::directory_iterator(after, none), fs::directory_iterator());
      if (files == world_size) break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  } while (Clock::now() - begin < patience);
  const double waited = seconds_since(begin);
  if (files < 0)
    return failed("rename",
                  fmt::format("{} has not appeared here in time after rank 0 has renamed it", after.string()));
  if (files != world_size)
    return failed("rename", fmt::format("{} holds the files of {} of {} ranks", after.string(), files, world_size));
  return {.check = "rename",
          .fact = fmt::format("a renamed folder is whole for all ranks after {:.2f} s", waited),
          .figures = {{"seconds", waited}}};
}

}  // namespace

std::vector<Finding> check_storage(const StorageRequest& request) {
  std::vector<Finding> findings;
  const fs::path folder = nearest_folder(request.folder);
  const fs::path before = folder / (request.trial + ".tmp"), after = folder / request.trial;
  const fs::path own = fs::path(fmt::format("rank_{}", request.rank));
  const auto run_together = [&](const std::string& check, const auto& action) {
    try {
      action();
    } catch (const std::exception& error) {
      findings.push_back(failed(check, error.what()));
    }
    request.barrier();
  };
  run_together(request.label, [&] {
    if (request.rank != 0) return;
    findings.push_back(check_room(request.label, folder, request.checkpoint_bytes));
    for (const fs::path& left : {before, after}) fs::remove_all(left);  // by one that was killed
    if (::mkdir(before.c_str(), 0777) != 0) fail("make", before);
  });
  run_together("storage", [&] {
    const double written = write_rate(before / own, request.bytes) / kGB, read = read_rate(before / own) / kGB;
    findings.push_back({.check = "storage",
                        .fact = fmt::format("writes {:.2f} GB/s, reads {:.2f} GB/s per rank", written, read),
                        .figures = {{"write_gbs", written}, {"read_gbs", read}}});
  });
  run_together("rename", [&] {
    if (request.rank == 0 && ::rename(before.c_str(), after.c_str()) != 0) fail("rename", before);
  });
  run_together("rename", [&] {
    const bool broken =
        std::ranges::any_of(findings, [](const Finding& finding) { return finding.severity == Severity::kError; });
    if (!broken) findings.push_back(find_renamed(before, after, request.world_size, request.patience));
  });
  run_together("storage", [&] {
    for (const fs::path& name : {before, after}) {
      if (request.rank == 0) fs::remove_all(name);
    }
  });
  return findings;
}

}  // namespace titanium::doctor
