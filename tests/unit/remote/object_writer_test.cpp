// How long an upload may take.
#include "titanium/remote/stores/object_writer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "tests/support/loopback_server.h"

namespace titanium::remote {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Nobody waits 20 s in silence where a read of others gives up before that.
TEST(ObjectWriter, AnUploadThatStallsIsTriedAgainAndEndsAsAReadDoes) {
  std::atomic<bool> ended = false;
  const test::LoopbackServer server([&](const std::string&, const test::LoopbackServer::Send&) {
    while (!ended) std::this_thread::sleep_for(milliseconds(10));
  });
  ::setenv("AWS_ENDPOINT_URL_S3", server.url().c_str(), 1);
  std::string sentence;
  try {
    ObjectWriter writer("s3://bucket/object",
                        {.first_pause = milliseconds(1), .deadline = seconds(4), .limit = seconds(6)});
    writer.publish();
  } catch (const Error& error) {
    sentence = error.what();
  }
  ended = true;
  ::unsetenv("AWS_ENDPOINT_URL_S3");
  EXPECT_TRUE(sentence.starts_with(server.url() + "/bucket/object: timeout was reached, after ")) << sentence;
  EXPECT_EQ(sentence.find("after 1 attempts"), std::string::npos) << sentence;
}

TEST(Http, AnUnhurriedRequestMayTakeLongerWhileBytesMove) {
  const test::LoopbackServer server([](const std::string&, const test::LoopbackServer::Send& send) {
    send("HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n");
    for (int i = 0; i < 20 && send(std::string(1'000, 'x')); ++i) std::this_thread::sleep_for(milliseconds(100));
  });
  for (const bool unhurried : {true, false}) {
    HttpRequest request{.method = "PUT", .url = parse_url(server.url()), .body = "x", .unhurried = unhurried};
    request.until = Clock::now() + seconds(1);
    if (unhurried) {
      EXPECT_EQ(http_once(request).body.size(), 20'000U);
    } else {
      EXPECT_THROW(http_once(request), TransientError);
    }
  }
}

}  // namespace
}  // namespace titanium::remote
