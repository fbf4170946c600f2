// Which bytes of an answer are taken.
#include "titanium/remote/reading/byte_source.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/support/loopback_server.h"
#include "tests/support/test_folder.h"

namespace titanium::remote {
namespace {

constexpr std::string_view kContent = "0123456789";

// What a read of bytes [3, 7) gives where the answer to it is `answer`, and that to HEAD tells `size` bytes.
std::string read_of(const std::string& answer, int64_t size = 10) {
  const test::LoopbackServer server([&](const std::string& request, const test::LoopbackServer::Send& send) {
    send(request.starts_with("HEAD") ? fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", size) : answer);
  });
  const auto source = open_bytes(server.url() + "/a", {.deadline = std::chrono::seconds(0)});
  std::string bytes(4, ' ');
  try {
    source->read(3, bytes);
  } catch (const Error& error) {
    const std::string sentence = error.what();
    return sentence.substr(server.url().size(), sentence.find(',') - server.url().size());
  }
  return bytes;
}

std::string answer_of(const std::string& status, std::string_view body) {
  return fmt::format("HTTP/1.1 {}\r\nContent-Length: {}\r\n\r\n{}", status, body.size(), body);
}

TEST(ByteSource, TakesTheBytesOfARangeAlsoFromAServerThatSendsEverything) {
  const std::string partial = "206 Partial Content\r\nContent-Range: bytes 3-6/10";
  EXPECT_EQ(read_of(answer_of(partial, kContent.substr(3, 4))), "3456");
  EXPECT_EQ(read_of(answer_of("200 OK", kContent)), "3456");
  EXPECT_EQ(read_of(answer_of(partial, "345")), "/a gave 3 of 4 bytes");
  EXPECT_EQ(read_of(answer_of(partial, "34567")), "/a gave 5 of 4 bytes");
  EXPECT_EQ(read_of(answer_of("200 OK", "01234567")), "/a gave 8 of 10 bytes");
  EXPECT_EQ(read_of(answer_of("206 Partial Content\r\nContent-Range: bytes 0-3/10", "0123")),
            "/a answers with the range bytes 0-3/10 for bytes from 3");
}

TEST(ByteSource, AServerWithoutRangesIsRefusedWhereAPartWouldTakeGigabytes) {
  const int64_t size = int64_t{5} << 30;
  EXPECT_EQ(
      read_of(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", size, kContent), size),
      "/a is at a server that knows no ranges: each part of it would take all 5368709120 bytes. Copy it to a disk");
}

TEST(ByteSource, OfflineAFileThatTheHubsCacheLacksIsNotThere) {
  const std::filesystem::path cache = test::test_folder(), repo = cache / "models--some--model";
  const std::string commit(40, 'a');
  std::filesystem::create_directories(repo / "refs");
  std::filesystem::create_directories(repo / "snapshots" / commit);
  std::ofstream(repo / "refs/main") << commit;
  std::ofstream(repo / "snapshots" / commit / "config.json") << "{}";
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  ::setenv("HF_HUB_CACHE", cache.c_str(), 1);
  EXPECT_TRUE(exists("hf://some/model/config.json"));
  EXPECT_FALSE(exists("hf://some/model/.metadata"));
  EXPECT_THROW(exists("hf://some/other/config.json"), Error);  // nothing is known of it
  for (const char* name : {"HF_HUB_OFFLINE", "HF_HUB_CACHE"}) ::unsetenv(name);
}

}  // namespace
}  // namespace titanium::remote
