#include "titanium/checkpoint/io/mapped_file.h"

#include <gtest/gtest.h>

#include "tests/support/test_folder.h"
#include "titanium/base/files/file.h"

namespace titanium::checkpoint {
namespace {

void read_after_cut(const std::filesystem::path& path) {
  explain_lost_pages();
  const MappedFile file(path, "weights");
  std::filesystem::resize_file(path, 0);
  const volatile std::byte* first = file.bytes().data();
  std::exit(*first == std::byte{} ? 3 : 4);
}

TEST(MappedFileDeathTest, AFileThatShrinksEndsTheProgramWithItsName) {
  const std::filesystem::path path = test::test_folder() / "model.safetensors";
  write_file_atomically(path, std::string(10'000, 'x'));
  EXPECT_EXIT(read_after_cut(path), testing::ExitedWithCode(1),
              "model.safetensors cannot be read any more: it became shorter while it was in use, or its disk failed");
}

}  // namespace
}  // namespace titanium::checkpoint
