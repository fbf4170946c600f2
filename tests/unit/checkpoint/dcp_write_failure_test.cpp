// Disks that are full, read-only or not ours: one sentence each, and nothing is left behind.
#include <ATen/ops/empty.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

#include "tests/support/test_folder.h"
#include "tests/support/without_privileges.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/checkpoint/dcp/writer.h"
#include "titanium/checkpoint/io/temporary_file.h"

#define EXPECT_SAYS(message, part) EXPECT_PRED_FORMAT2(::testing::IsSubstring, part, message)

namespace titanium::checkpoint {
namespace {

using test::test_folder;

// 20 MiB in two files.
std::string write_failure(const std::filesystem::path& folder) {
  const Shape shape = {10 << 20};
  std::vector<DcpTensorItem> items;
  for (const char* name : {"a", "b"}) {
    items.push_back({name, shape, {{0}, shape}, at::empty(shape, at::TensorOptions(at::kByte)), false, {}});
  }
  try {
    write_dcp_files(folder, 0, items, {}, 2);
    return "written";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string names_in(const std::filesystem::path& folder) {
  std::string names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names += entry.path().filename().string() + " ";
  return names;
}

// A file system of its own at a folder, where the system lets us.
class Mount {
 public:
  Mount(const std::filesystem::path& folder, const char* options)
      : folder_(folder), is_there_(::mount("tmpfs", folder.c_str(), "tmpfs", 0, options) == 0) {}
  ~Mount() {
    if (is_there_) ::umount(folder_.c_str());
  }
  bool is_there() const { return is_there_; }
  bool make_read_only() { return ::mount("tmpfs", folder_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr) == 0; }

 private:
  std::filesystem::path folder_;
  bool is_there_;
};

TEST(DcpWriteFailure, AFullDiskIsNamed) {
  const auto folder = test_folder();
  const Mount mount(folder, "size=12m");
  if (!mount.is_there()) GTEST_SKIP() << "file systems cannot be mounted here";
  const std::string message = write_failure(folder);
  EXPECT_SAYS(message, (folder.string() + "/__0_"));
  EXPECT_SAYS(message, ("distcp cannot be written: No space left on device. Free some space there"));
  EXPECT_EQ(names_in(folder).find("tmp"), std::string::npos) << names_in(folder);
}

TEST(DcpWriteFailure, AReadOnlyFileSystemIsNamed) {
  const auto folder = test_folder();
  Mount mount(folder, "size=1m");
  if (!mount.is_there() || !mount.make_read_only()) GTEST_SKIP() << "file systems cannot be mounted here";
  EXPECT_SAYS(write_failure(folder), ("cannot be written: Read-only file system. The file system is read-only"));
  EXPECT_SAYS(write_failure(folder / "step-10"), ("step-10 cannot be written: Read-only file system."));
}

TEST(DcpWriteFailure, ALimitOnTheSizeOfFilesIsNamed) {
  const auto folder = test_folder();
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = before;
  limit.rlim_cur = 5 << 20;
  ::setrlimit(RLIMIT_FSIZE, &limit);
  const std::string message = write_failure(folder);
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_SAYS(message, ("cannot be written: File too large. Raise the limit on the size of files (ulimit -f)."));
  EXPECT_EQ(names_in(folder), "");
}

TEST(DcpWriteFailure, MissingPermissionIsNamed) {
  const auto folder = test_folder();
  std::filesystem::permissions(folder, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  std::string message;
  {
    const test::WithoutPrivileges any_user;
    message = write_failure(folder);
  }
  EXPECT_SAYS(message, ("cannot be written: Permission denied. Get permission to write there"));
  EXPECT_EQ(names_in(folder), "");
}

TEST(DcpWriteFailure, APathThroughAFileIsNamed) {
  const auto folder = test_folder();
  write_file_atomically(folder / "file", "");
  EXPECT_SAYS(write_failure(folder / "file" / "step-1"), ("file/step-1 cannot be written: Not a directory. Check"));
}

TEST(DcpWriteFailure, AFolderThatVanishesIsNamed) {
  const auto folder = test_folder() / "step-1";
  TemporaryFile file(folder / "__0_0.distcp");
  file.write("some bytes");
  std::filesystem::remove_all(folder);
  EXPECT_THROW(
      {
        try {
          file.publish();
        } catch (const Error& error) {
          EXPECT_SAYS(error.what(), ("__0_0.distcp cannot be written: No such file or directory. Check the path"));
          throw;
        }
      },
      Error);
}

TEST(DcpWriteFailure, AFolderInThePlaceOfAFileIsNamedAndLeavesNothing) {
  const auto folder = test_folder();
  std::filesystem::create_directories(folder / "__0_0.distcp");
  std::filesystem::create_directories(folder / "__0_1.distcp");
  EXPECT_SAYS(write_failure(folder), ("cannot be written: Is a directory. Check the path"));
  EXPECT_EQ(names_in(folder).find("tmp"), std::string::npos) << names_in(folder);
}

TEST(TemporaryFile, AnyPiecesOfAnySizeAreWritten) {
  const auto folder = test_folder();
  std::string content(20'000'001, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * i >> 7);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4096}, size_t{8} << 20, content.size()}) {
    TemporaryFile file(folder / "f");
    const std::string_view expected = std::string_view(content).substr(0, size);
    for (std::string_view rest = expected; !rest.empty();) {
      const size_t piece = std::min(rest.size(), 1 + (rest.size() * 7) % 3'000'000);
      file.write(rest.substr(0, piece));
      rest.remove_prefix(piece);
    }
    EXPECT_EQ(file.size(), size);
    file.publish();
    EXPECT_TRUE(read_file(folder / "f", "file") == expected) << size;
  }
}

}  // namespace
}  // namespace titanium::checkpoint
