// What is left on disk when writing succeeds, fails, or meets something that is no plain file.
#include "titanium/base/files/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/file_size_limit.h"
#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/base/files/growing_file.h"
#include "titanium/base/files/mapped_range.h"
#include "titanium/base/log.h"

namespace titanium {
namespace {

namespace fs = std::filesystem;
using test::FileSizeLimit;
using test::test_folder;

std::string write_error(const fs::path& path, std::string_view content) {
  try {
    write_file_atomically(path, content);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

size_t entries(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(AtomicWrite, KeepsALinkAndReplacesWhatItNames) {
  const fs::path folder = test_folder();
  fs::create_directories(folder / "real");
  write_file_atomically(folder / "real/file", "old");
  fs::create_symlink("real/file", folder / "link");
  fs::create_symlink("link", folder / "link_of_link");
  write_file_atomically(folder / "link_of_link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_TRUE(fs::is_symlink(folder / "link_of_link"));
  EXPECT_EQ(read_file(folder / "real/file", "file"), "new");
  EXPECT_EQ(entries(folder / "real"), 1U);

  fs::create_symlink("not_yet", folder / "dangling");
  write_file_atomically(folder / "dangling", "made");
  EXPECT_EQ(read_file(folder / "not_yet", "file"), "made");

  fs::create_symlink("loop", folder / "loop");
  EXPECT_NE(write_error(folder / "loop", "x").find("symbolic links"), std::string::npos);
}

TEST(AtomicWrite, WritesToADeviceOrPipeInsteadOfReplacingIt) {
  const fs::path folder = test_folder();
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const int reader = ::open((folder / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  write_file_atomically(folder / "pipe", "text");
  char text[8] = "";
  EXPECT_EQ(::read(reader, text, sizeof text), 4);
  EXPECT_STREQ(text, "text");
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(folder / "pipe"));
  EXPECT_EQ(entries(folder), 1U);
  EXPECT_EQ(write_error("/dev/full", "text"),
            "/dev/full cannot be written: No space left on device. Check permissions and free space.");
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST(AtomicWrite, AFullDiskLeavesTheOldFileAndNothingElse) {
  const fs::path folder = test_folder();
  write_file_atomically(folder / "file", "old");
  std::string message;
  {
    const FileSizeLimit full(1000);
    message = write_error(folder / "file", std::string(2000, 'x'));
  }
  EXPECT_NE(message.find("file cannot be written: File too large"), std::string::npos) << message;
  EXPECT_EQ(read_file(folder / "file", "file"), "old");
  EXPECT_EQ(entries(folder), 1U);
}

TEST(AtomicWrite, DoesNotFollowALinkThatSomebodyPutWhereItsTemporaryGoes) {
  const fs::path folder = test_folder();
  write_file_atomically(folder / "precious", "precious");
  for (int i = 0; i < 100; ++i) {
    fs::create_symlink("precious", folder / fmt::format("file.{}.{}.tmp", ::getpid(), i));
  }
  fs::create_symlink("precious", folder / fmt::format("file.{}.tmp", ::getpid()));
  write_file_atomically(folder / "file", "new");
  EXPECT_EQ(read_file(folder / "precious", "file"), "precious");
  EXPECT_FALSE(fs::is_symlink(folder / "file"));
}

TEST(AtomicWrite, KeepsPermissionsAndNamesAFolderThatCannotBeMade) {
  const fs::path file = test_folder() / "file";
  write_file_atomically(file, "old");
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  write_file_atomically(file, "new");
  EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_NE(write_error(file / "sub/file", "").find("sub cannot be made: Not a directory"), std::string::npos);
}

// Three steps of a run whose disk is full at the second.
TEST(GrowingFile, GoesOnWhenTheDiskIsFullAndCatchesUpLater) {
  const fs::path path = test_folder() / "log";
  const std::string first(5000, 'a'), second(5000, 'b'), third(5000, 'c'), fourth(10, 'd');
  testing::internal::CaptureStdout();
  log_to_stdout(LogLevel::kInfo);
  {
    GrowingFile file(path, "");
    file.append(first);
    {
      const FileSizeLimit full(8192);
      file.append(second);
      file.append(third);
      EXPECT_EQ(fs::file_size(path), 8192U);
    }
    file.append(fourth);
    EXPECT_EQ(read_file(path, "log"), first + second + third + fourth);
  }
  const std::string log = testing::internal::GetCapturedStdout();
  EXPECT_EQ(log.find("cannot be written: File too large. The run goes on"), log.rfind("cannot be written")) << log;
  EXPECT_NE(log.find("can be written again; nothing is missing"), std::string::npos) << log;
}

TEST(GrowingFile, SaysHowMuchIsMissing) {
  const fs::path path = test_folder() / "log";
  const std::string kept(GrowingFile::kMostKept - 10, 'k');
  testing::internal::CaptureStdout();
  log_to_stdout(LogLevel::kInfo);
  {
    GrowingFile file(path, "", [](int64_t lost) { return fmt::format("<{} lost>", lost); });
    file.append("begin ");
    {
      const FileSizeLimit full(6);
      file.append(kept);
      file.append(std::string(2000, 'x'));
      file.append("short");  // after a gap nothing may seem to be whole
    }
    file.append(" end");
  }
  const std::string log = testing::internal::GetCapturedStdout();
  EXPECT_EQ(read_file(path, "log"), "begin " + kept + "<2005 lost> end");
  EXPECT_NE(log.find("can be written again; 2,005 bytes are missing"), std::string::npos) << log;
}

TEST(GrowingFile, SaysAtTheEndThatItIsNotWhole) {
  testing::internal::CaptureStdout();
  log_to_stdout(LogLevel::kInfo);
  GrowingFile("/dev/full", "").append("four");
  const std::string log = testing::internal::GetCapturedStdout();
  EXPECT_NE(log.find("/dev/full ends too early: 4 bytes could not be written"), std::string::npos) << log;
}

// A page of a file that has become empty cannot be read.
void read_lost_page(const fs::path& path, bool named) {
  const int file = ::open(path.c_str(), O_RDWR);
  const size_t size = fs::file_size(path);
  const auto* memory = static_cast<const std::byte*>(::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0));
  const MappedRange range({memory, named ? size : 0}, path.string());
  explain_lost_pages();
  [[maybe_unused]] const int cut = ::ftruncate(file, 0);
  const volatile std::byte* last = memory + size - 1;
  std::exit(*last == std::byte{} ? 3 : 4);
}

TEST(MappedRangeDeathTest, AFileThatShrinksIsNamed) {
  const fs::path path = test_folder() / "weights\x1b.bin";
  write_file_atomically(path, std::string(100'000, 'x'));
  EXPECT_EXIT(read_lost_page(path, true), testing::ExitedWithCode(1),
              "weights.x1b.bin cannot be read any more: it became shorter while it was in use");
}

TEST(MappedRangeDeathTest, OtherMemoryFailsAsEver) {
  const fs::path path = test_folder() / "file";
  write_file_atomically(path, std::string(100'000, 'x'));
  EXPECT_EXIT(read_lost_page(path, false), testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace titanium
