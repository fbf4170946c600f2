// Texts of libraries, as they come, and what the user reads.
#include "titanium/cli/error_sentence.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "titanium/base/error.h"
#include "titanium/tensor/tensor.h"

namespace titanium::cli {
namespace {

template <typename Action>
std::string sentence_of(const Action& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error_sentence(error);
  }
  return "nothing was thrown";
}

// One line that begins as `begin` and has none of the words that mean something only to a library's author.
void expect_sentence(const std::string& text, const std::string& begin) {
  EXPECT_TRUE(text.starts_with(begin)) << text;
  EXPECT_TRUE(text.ends_with(".") || text.ends_with(")")) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  for (const char* word :
       {"std::", "filesystem error", "enforce fail", "json.exception", "frame #", "Exception raised"}) {
    EXPECT_EQ(text.find(word), std::string::npos) << text;
  }
}

TEST(ErrorSentence, OwnErrorsStayAsTheyAre) {
  EXPECT_EQ(error_sentence(Error("one.\ntwo.")), "one.\ntwo.");
  EXPECT_EQ(error_sentence(UsageError("a\x1b[2Jb.\n\n")), "a\\x1b[2Jb.\n\n");
  EXPECT_EQ(error_sentence(Error("")), "");
}

TEST(ErrorSentence, MemoryThatIsNotThere) {
  expect_sentence(error_sentence(std::bad_alloc()), "this machine is out of memory. Use fewer ranks");
  expect_sentence(
      sentence_of([] { at::empty({int64_t{1} << 50}, at::kByte); }),
      "this machine is out of memory (1,125,899,906,842,624 bytes were asked for at once). Use fewer ranks");
  expect_sentence(sentence_of([] { std::string().resize(std::string().max_size() + 1); }),
                  "a size in the configuration or in a file is larger than any memory.");
  expect_sentence(sentence_of([] { at::empty({int64_t{1} << 40, int64_t{1} << 40}, at::kByte); }),
                  "a size in the configuration or in a file is larger than any tensor can be.");
}

TEST(ErrorSentence, FilesAndLimits) {
  expect_sentence(sentence_of([] { [[maybe_unused]] const auto size = std::filesystem::file_size("/no/such"); }),
                  "/no/such: No such file or directory. Check the path");
  expect_sentence(sentence_of([] { std::filesystem::rename("/no/such", "/tmp/x"); }),
                  "/no/such and /tmp/x: No such file or directory.");
  expect_sentence(error_sentence(std::system_error(EAGAIN, std::generic_category(), "thread")),
                  "the system refused what the program needs: Resource temporarily unavailable. Check the limits");
}

TEST(ErrorSentence, TensorsAndProcesses) {
  expect_sentence(sentence_of([] { at::add(at::ones({2}), at::ones({3})); }),
                  "libtorch refused an operation: The size of tensor a (2) must match");
  expect_sentence(
      error_sentence(c10::DistNetworkError({__func__, __FILE__, 1},
                                           "The client socket has failed to connect to any address.\nframe #0: x")),
      "the processes of the job cannot exchange: The client socket has failed to connect to any address. Check");
}

TEST(ErrorSentence, TheRest) {
  expect_sentence(sentence_of([] { [[maybe_unused]] const auto json = nlohmann::json::parse("{"); }),
                  "a JSON text is damaged or has another form than expected: parse error");
  expect_sentence(error_sentence(std::runtime_error("odd")), "unexpected error, a bug in Titanium: odd. Please");
  EXPECT_TRUE(sentence_of([] { TI_ASSERT(false, "x"); }).starts_with("bug in Titanium at "));
}

}  // namespace
}  // namespace titanium::cli
