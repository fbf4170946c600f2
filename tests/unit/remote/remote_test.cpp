// Digests, signatures, addresses, reading ahead, and what a request does with an answer.
#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/support/loopback_server.h"
#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/remote/digest.h"
#include "titanium/remote/reading/local_copy.h"
#include "titanium/remote/reading/read_ahead.h"
#include "titanium/remote/reading/windowed_bytes.h"
#include "titanium/remote/stores/aws_signature.h"
#include "titanium/remote/stores/object_stores.h"

namespace titanium::remote {
namespace {

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string hex_sha1(std::string_view bytes) {
  Sha1 digest;
  digest.update(bytes);
  return to_hex(digest.finish());
}

// From FIPS 180-2, RFC 4231 and git.
TEST(Digest, KnownMessagesHaveTheirDigests) {
  EXPECT_EQ(to_hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(to_hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(to_hex(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(hex_sha1("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(hex_sha1(std::string("blob 6\0hello\n", 13)), "ce013625030ba8dba906f756967f9e9ca394464a");
  EXPECT_EQ(to_hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(Digest, PiecesGiveTheSameAsTheWhole) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) bytes += static_cast<char>(i * 7);
  for (size_t cut = 0; cut <= bytes.size(); cut += 13) {
    Sha256 digest;
    digest.update(std::string_view(bytes).substr(0, cut));
    digest.update(std::string_view(bytes).substr(cut));
    EXPECT_EQ(digest.finish(), sha256(bytes)) << cut;
  }
}

// The examples of Amazon's documentation of S3 (24 May 2013, examplebucket).
TEST(AwsSignature, ExamplesOfTheDocumentationHaveTheirSignatures) {
  const AwsCredentials credentials{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
  constexpr int64_t kTime = 1369353600;
  HttpRequest get{.url = parse_url("https://examplebucket.s3.amazonaws.com/test.txt"),
                  .headers = {{"range", "bytes=0-9"}}};
  sign_request(get, credentials, "us-east-1", kTime);
  EXPECT_EQ(get.headers.at("authorization"),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  HttpRequest list{.url = parse_url("https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J")};
  sign_request(list, credentials, "us-east-1", kTime);
  EXPECT_TRUE(list.headers.at("authorization")
                  .ends_with("Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
  HttpRequest open{.url = get.url};
  sign_request(open, {}, "us-east-1", kTime);
  EXPECT_TRUE(open.headers.empty());
  HttpRequest temporary{.url = get.url};
  sign_request(temporary, {"key", "secret", "session"}, "us-east-1", kTime);
  EXPECT_EQ(temporary.headers.at("x-amz-security-token"), "session");
  EXPECT_NE(temporary.headers.at("authorization").find("x-amz-date;x-amz-security-token, "), std::string::npos);
}

TEST(Url, PlainHttpToOtherMachinesIsUnprotected) {
  for (const char* url : {"http://store.example/a", "http://10.0.0.7:9000/a", "http://localhost.example/a"}) {
    EXPECT_TRUE(parse_url(url).is_unprotected()) << url;
  }
  for (const char* url : {"https://store.example/a", "http://127.0.0.1:9000/a", "http://localhost:80/a",
                          "http://localhost/a", "http://[::1]:9000/a"}) {
    EXPECT_FALSE(parse_url(url).is_unprotected()) << url;
  }
}

TEST(Url, RedirectsAreResolved) {
  const Url from = parse_url("https://host:8080/a/b?c=d");
  EXPECT_EQ(resolve_url(from, "/x?y").text(), "https://host:8080/x?y");
  EXPECT_EQ(resolve_url(from, "x").text(), "https://host:8080/a/x");
  EXPECT_EQ(resolve_url(from, "//other/x").text(), "https://other/x");
  EXPECT_FALSE(resolve_url(from, "https://host/x").same_server(from));
  EXPECT_FALSE(resolve_url(from, "http://host:8080/x").same_server(from));
  EXPECT_TRUE(is_url("s3://bucket/key"));
  EXPECT_TRUE(is_url("hf:/owner/name"));
  EXPECT_FALSE(is_url("/data/s3:/x"));
  EXPECT_FALSE(is_url("c:/x"));
}

TEST(HubAddress, PartsAreFoundAndMistakesAreNamed) {
  const HubAddress model = parse_hub_address("hf://acme/tiny");
  EXPECT_EQ(model.repo.kind + model.repo.id + model.repo.revision + model.path, "modelacme/tinymain");
  const HubAddress file = parse_hub_address("hf://datasets/acme/texts@v1%2F2/en/a.jsonl");
  EXPECT_EQ(file.repo.kind, "dataset");
  EXPECT_EQ(file.repo.id, "acme/texts");
  EXPECT_EQ(file.repo.revision, "v1/2");
  EXPECT_EQ(file.path, "en/a.jsonl");
  const HubAddress converted = parse_hub_address("hf://datasets/acme/texts@refs/convert/parquet/default/train");
  EXPECT_EQ(converted.repo.id, "acme/texts");
  EXPECT_EQ(converted.repo.revision, "refs/convert/parquet");
  EXPECT_EQ(converted.path, "default/train");
  const HubAddress proposed = parse_hub_address("hf://acme/tiny@refs/pr/7");
  EXPECT_EQ(proposed.repo.revision + proposed.path, "refs/pr/7");
  EXPECT_EQ(parse_hub_address("hf://acme/tiny/a@b/c").path, "a@b/c");
  EXPECT_EQ(
      error_of([] { parse_hub_address("hf://acme"); }),
      "hf://acme is not an address of the hub such as hf://meta-llama/Llama-3.1-8B or hf://datasets/allenai/c4/en.");
}

TEST(ByteSource, OtherSchemesAreRefused) {
  for (const char* path : {"ftp://host/x", "abfs://container/x"}) {
    const std::string scheme = parse_url(path).scheme;
    EXPECT_EQ(
        error_of([&] { open_bytes(path); }),
        fmt::format(
            "{}: addresses of {}:// are not supported. Supported are https://, http://, s3://, gs://, az:// and hf://, "
            "and mounted folders.",
            path, scheme));
    EXPECT_EQ(error_of([&] { list_files(path); }), error_of([&] { open_bytes(path); }));
  }
}

TEST(ReadAhead, GivesTheBytesOfTheSourceFromAnyPlace) {
  const std::filesystem::path file = test::test_folder() / "bytes";
  std::mt19937_64 random(3);
  std::string content(13'000'001, '\0');
  for (char& c : content) c = static_cast<char>(random());
  write_file_atomically(file, content);
  for (const int64_t offset : {0, 1, 4 << 20, 13'000'000, 13'000'001}) {
    ReadAhead reader(open_bytes(file.string()), {.offset = offset});
    std::string got, piece(1'000'003, '\0');
    while (const size_t count = reader.read(piece.data(), piece.size())) got.append(piece, 0, count);
    EXPECT_EQ(got, content.substr(static_cast<size_t>(offset))) << offset;
  }
}

// Counts what is asked for.
class CountedBytes : public ByteSource {
 public:
  CountedBytes(const std::string& content, std::vector<std::pair<int64_t, size_t>>& reads)
      : content_(content), reads_(reads) {}
  int64_t size() const override { return static_cast<int64_t>(content_.size()); }
  void read(int64_t offset, std::span<char> out) const override {
    ASSERT_LE(offset + static_cast<int64_t>(out.size()), size());
    content_.copy(out.data(), out.size(), static_cast<size_t>(offset));
    const std::lock_guard lock(mutex_);
    reads_.emplace_back(offset, out.size());
  }

 private:
  const std::string& content_;
  std::vector<std::pair<int64_t, size_t>>& reads_;
  mutable std::mutex mutex_;
};

class Windows : public testing::Test {
 protected:
  Windows() : content_(20'000'003, '\0') {
    std::mt19937_64 random(5);
    for (char& c : content_) c = static_cast<char>(random());
  }
  void expect_bytes(const WindowedBytes& bytes, int64_t offset, size_t size) const {
    std::string got(size, '\0');
    bytes.read(offset, got);
    EXPECT_TRUE(got == content_.substr(static_cast<size_t>(offset), size)) << offset << " " << size;
  }
  size_t asked() const {
    size_t sum = 0;
    for (const auto& [offset, size] : reads_) sum += size;
    return sum;
  }

  std::string content_;
  std::vector<std::pair<int64_t, size_t>> reads_;
};

TEST_F(Windows, GiveTheBytesOfTheSourceInAnyOrder) {
  const WindowedBytes bytes(std::make_unique<CountedBytes>(content_, reads_));
  std::mt19937_64 random(7);
  for (int i = 0; i < 300; ++i) {
    const size_t size = random() % (i % 30 == 0 ? 9'000'000 : 40'000) + 1;
    expect_bytes(bytes, static_cast<int64_t>(random() % (content_.size() - size + 1)), size);
  }
  if (random() % 2 == 0) bytes.expect(100, 6'000'000);
  for (int64_t at = 0; at + 70'001 <= bytes.size(); at += 70'001) expect_bytes(bytes, at, 70'001);
  expect_bytes(bytes, bytes.size() - 1, 1);
}

TEST_F(Windows, ReadingForwardTakesFewRequestsAndEachByteOnce) {
  {
    const WindowedBytes bytes(std::make_unique<CountedBytes>(content_, reads_));
    for (int64_t at = 0; at + 1'000 <= bytes.size(); at += 1'000) expect_bytes(bytes, at, 1'000);
  }
  EXPECT_LE(reads_.size(), 12);
  EXPECT_LE(asked(), content_.size());
}

TEST_F(Windows, TakeNoMoreThanTheyMay) {
  {
    const WindowedBytes bytes(std::make_unique<CountedBytes>(content_, reads_), 200'000);
    bytes.expect(0, 3'000'000);
    for (int64_t at = 0; at + 1'000 <= 3'000'000; at += 1'000) expect_bytes(bytes, at, 1'000);
  }
  for (const auto& [offset, size] : reads_) EXPECT_LE(size, 200'000);
  EXPECT_EQ(asked(), 3'000'000);
}

TEST_F(Windows, ReadingAheadStopsAtTheEndOfItsPart) {
  ReadAhead reader(std::make_unique<CountedBytes>(content_, reads_),
                   {.offset = 1'000'000, .end = 2'000'000, .memory_bytes = 1 << 20});
  std::string got, piece(77'777, '\0');
  while (got.size() < 1'000'000)
    got.append(piece, 0, reader.read(piece.data(), std::min<size_t>(piece.size(), 1'000'000 - got.size())));
  EXPECT_EQ(asked(), 1'000'000);
  for (const auto& [offset, size] : reads_) EXPECT_LE(size, (1 << 20) / 4);
  got.append(piece, 0, reader.read(piece.data(), 10));  // what a record that goes on behind the end needs
  EXPECT_TRUE(got == content_.substr(1'000'000, 1'000'010));
  EXPECT_EQ(asked(), 1'000'000 + (16 << 10));
}

TEST_F(Windows, ReadingGoesOnFarBehindTheEndOfItsPart) {
  ReadAhead reader(std::make_unique<CountedBytes>(content_, reads_), {.end = 1, .memory_bytes = 256 << 10});
  std::string got, piece(100'000, '\0');
  while (const size_t count = reader.read(piece.data(), piece.size())) got.append(piece, 0, count);
  EXPECT_TRUE(got == content_);
  EXPECT_GT(reads_.size(), 200U);  // each piece twice as large as the one before would be beyond 64 bits
}

TEST_F(Windows, TwoPlacesThatAreReadInTurnsAndRandomOnesCostLittle) {
  {
    const WindowedBytes bytes(std::make_unique<CountedBytes>(content_, reads_));
    for (int64_t i = 0; i < 1'000; ++i) {
      expect_bytes(bytes, 8 * i, 8);
      expect_bytes(bytes, 10'000'000 + 500 * i, 500);
    }
  }
  EXPECT_LE(reads_.size(), 12);
  reads_.clear();
  {
    const WindowedBytes bytes(std::make_unique<CountedBytes>(content_, reads_));
    for (int64_t i = 0; i < 50; ++i) expect_bytes(bytes, (i * 7'919'003) % 19'000'000, 3'000);
  }
  EXPECT_LE(asked(), 50 * (64 << 10));
}

TEST_F(Windows, NothingIsReadBehindWhatIsExpected) {
  {
    const WindowedBytes bytes(std::make_unique<CountedBytes>(content_, reads_));
    bytes.expect(1'000'000, 7'000'000);
    for (int64_t at = 1'000'000; at < 7'000'000; at += 100'000) expect_bytes(bytes, at, 100'000);
  }
  EXPECT_EQ(asked(), 6'000'000);
  EXPECT_EQ(reads_.size(), 2);
}

TEST_F(Windows, WhatIsExpectedAgainPushesNothingOut) {
  constexpr int64_t kEnd = 1 << 20;
  {
    const WindowedBytes bytes(std::make_unique<CountedBytes>(content_, reads_));
    bytes.expect(0, kEnd);
    for (int i = 0; i < 20; ++i) bytes.expect(0, 1'000);
    for (int64_t at = 1'000; at < kEnd; at += 1'000) expect_bytes(bytes, at, std::min<int64_t>(1'000, kEnd - at));
  }
  for (const auto& [offset, size] : reads_) EXPECT_LE(offset + static_cast<int64_t>(size), kEnd);
}

// A source whose bytes take a while to come; counts how many reads are under way at a time.
class SlowBytes : public ByteSource {
 public:
  explicit SlowBytes(std::atomic<int>& most) : most_(most) {}
  int64_t size() const override { return 400'000'000; }
  void read(int64_t, std::span<char>) const override {
    const int now = ++under_way_;
    for (int most = most_; now > most && !most_.compare_exchange_weak(most, now);) continue;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    --under_way_;
  }

 private:
  std::atomic<int>& most_;
  mutable std::atomic<int> under_way_ = 0;
};

TEST(ReadAhead, ReadsAsFarAheadAsTheReaderWouldWaitAlsoInWindows) {
  const auto most_under_way = [](const std::function<void(std::unique_ptr<ByteSource>)>& read) {
    std::atomic<int> most = 0;
    read(std::make_unique<SlowBytes>(most));
    return most.load();
  };
  std::string piece(1'000'000, '\0');
  const auto from_windows = [&](std::unique_ptr<ByteSource> source, int64_t largest, bool expected) {
    const WindowedBytes bytes(std::move(source), largest);
    if (expected) bytes.expect(0, 90 * largest);
    for (int64_t at = 0; at < 80 * largest; at += largest / 8)
      bytes.read(at, std::span(piece).first(static_cast<size_t>(std::min<int64_t>(largest / 8, 1'000'000))));
  };
  EXPECT_EQ(most_under_way([&](auto source) {
              ReadAhead reader(std::move(source), {});
              while (reader.read(piece.data(), piece.size()) > 0) continue;
            }),
            8);
  for (const bool expected : {true, false}) {
    const auto windows = [&](int64_t largest) {
      return most_under_way([&](auto source) { from_windows(std::move(source), largest, expected); });
    };
    EXPECT_EQ(windows(WindowedBytes::kLargest), 8) << expected;
    EXPECT_EQ(windows(256 << 10), 4) << expected;
  }
}

TEST(Retries, EndAtTheDeadlineWithASentence) {
  int attempts = 0;
  const RetryPolicy policy{.first_pause = std::chrono::milliseconds(1),
                           .longest_pause = std::chrono::milliseconds(4),
                           .deadline = std::chrono::seconds(1)};
  EXPECT_EQ(with_retries(policy, [&] { return ++attempts < 4 ? throw TransientError("busy") : attempts; }), 4);
  const std::string sentence =
      error_of([&] { with_retries(policy, [&]() -> int { throw TransientError("the server is busy"); }); });
  EXPECT_TRUE(sentence.starts_with("the server is busy, after ")) << sentence;
  EXPECT_TRUE(sentence.ends_with(" s. Check the network and the server.")) << sentence;
  EXPECT_EQ(error_of([&] {
              with_retries(policy, [&]() -> int {
                ++attempts;
                throw UsageError("denied");
              });
            }),
            "denied");
  EXPECT_EQ(attempts, 5);
}

TEST(Retries, TellAttemptsHowLongTheyMayLast) {
  const RetryPolicy policy{.first_pause = std::chrono::milliseconds(100), .limit = std::chrono::seconds(7)};
  const auto before = Clock::now();
  std::vector<Clock::time_point> ends;
  with_retries(policy, [&](Clock::time_point until) {
    ends.push_back(until);
    if (ends.size() < 2) throw TransientError("busy");
  });
  EXPECT_GE(ends.at(0), before + std::chrono::seconds(7));
  EXPECT_LE(ends.at(0), Clock::now() + std::chrono::seconds(7));
  EXPECT_EQ(ends.at(1), ends[0]);
}

TEST(Retries, EndBeforeTheCollectivesOfOtherRanksAlsoOfWhatIsOpen) {
  const Patience before = patience();
  const RetryPolicy policy;  // of a source that was opened before
  const auto longest = [&](const RetryPolicy& asked) {
    return with_retries(asked, [](Clock::time_point until) { return until - Clock::now(); });
  };
  for (const int timeout : {2, 100, 1800}) {
    set_patience(patience_within(std::chrono::seconds(timeout)));
    EXPECT_LT(patience().deadline, patience().limit);
    EXPECT_LE(longest(policy), std::chrono::milliseconds(900) * timeout);
    EXPECT_GT(longest(policy), std::chrono::milliseconds(600) * timeout);
    EXPECT_GT(longest({.limit = std::chrono::hours(2)}), std::chrono::hours(1));
  }
  set_patience(before);
  EXPECT_EQ(before.limit, Patience{}.limit);
  EXPECT_EQ(patience_within(std::chrono::seconds(100)).deadline, Patience{}.deadline);
}

TEST(Retries, InsideAnAttemptEndWithIt) {
  with_retries({.limit = std::chrono::seconds(5)}, [](Clock::time_point outer) {
    with_retries({.deadline = std::chrono::seconds(20)}, [&](Clock::time_point inner) { EXPECT_EQ(inner, outer); });
    with_retries({.limit = std::chrono::seconds(1)}, [&](Clock::time_point inner) { EXPECT_LT(inner, outer); });
    with_retries({}, [&](Clock::time_point inner) { EXPECT_EQ(inner, outer); });
  });
  with_retries({.limit = std::chrono::seconds(7)}, [](Clock::time_point until) {
    EXPECT_GT(until, Clock::now() + std::chrono::seconds(5));  // the one before has left nothing
  });
}

TEST(Http, AnAnswerThatDripsEndsAtTheLimitOfItsRequest) {
  const test::LoopbackServer server([](const std::string&, const test::LoopbackServer::Send& send) {
    send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
    while (send(std::string(100, 'x'))) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  });
  HttpRequest request{.url = parse_url(server.url())};
  for (const int milliseconds : {300, 0, -5'000}) {  // also when the time is over before it is sent
    request.until = Clock::now() + std::chrono::milliseconds(milliseconds);
    EXPECT_THROW(http_once(request), TransientError);
  }
}

TEST(Http, AllRedirectsTogetherEndAtTheLimitOfTheirRequest) {
  std::atomic<int> requests = 0;
  const test::LoopbackServer server([&](const std::string&, const test::LoopbackServer::Send& send) {
    ++requests;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    send("HTTP/1.1 307 Elsewhere\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n");
  });
  HttpRequest request{.url = parse_url(server.url()), .until = Clock::now() + std::chrono::milliseconds(700)};
  EXPECT_THROW(http_through_redirects(request), TransientError);
  EXPECT_LE(requests, 3);
}

TEST(ByteSource, AReadThatDripsEndsAtTheLimitOfItsPolicy) {
  const test::LoopbackServer server([](const std::string& request, const test::LoopbackServer::Send& send) {
    send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
    if (request.starts_with("HEAD")) return;
    while (send(std::string(100, 'x'))) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  });
  const RetryPolicy policy{.deadline = std::chrono::seconds(1), .limit = std::chrono::seconds(1)};
  const auto source = open_bytes(server.url() + "/a", policy);
  std::string bytes(1'000'000, ' ');
  const std::string sentence = error_of([&] { source->read(0, bytes); });
  EXPECT_TRUE(sentence.starts_with(server.url() + "/a: timeout was reached, after 1 attempts in ")) << sentence;
}

TEST(ByteSource, NoMessageHoldsTheQueryOfAnAddress) {
  const test::LoopbackServer server([](const std::string& request, const test::LoopbackServer::Send& send) {
    const char* etag = request.starts_with("HEAD") ? "1" : "2";
    send(fmt::format("HTTP/1.1 200 OK\r\nETag: {}\r\nContent-Length: 3\r\n\r\nabc", etag));
  });
  const auto source = open_bytes(server.url() + "/a?X-Amz-Signature=secret");
  std::string bytes(3, ' ');
  EXPECT_EQ(error_of([&] { source->read(0, bytes); }),
            server.url() + "/a has changed while it was read. Start again, or name an object that stays.");
}

TEST(LocalCopy, OtherBytesOfTheSameSizeAreFetchedAnew) {
  std::string content = "old", header = "ETag: \"1\"";
  const test::LoopbackServer server([&](const std::string&, const test::LoopbackServer::Send& send) {
    send(fmt::format("HTTP/1.1 200 OK\r\n{}\r\nContent-Length: 3\r\n\r\n{}", header, content));
  });
  ::setenv("XDG_CACHE_HOME", test::test_folder().c_str(), 1);
  const auto copied = [&] { return read_file(local_copy(server.url() + "/weights"), "copy"); };
  EXPECT_EQ(copied(), "old");
  content = "bad";
  EXPECT_EQ(copied(), "old");  // the server says that it is the same
  content = "new";
  header = "ETag: \"2\"";
  EXPECT_EQ(copied(), "new");
  content = "now";
  header = "Last-Modified: Wed, 18 Nov 2026 09:30:00 GMT";
  EXPECT_EQ(copied(), "now");
  ::unsetenv("XDG_CACHE_HOME");
}

TEST(LocalCopy, RanksThatAskAtTheSameTimeFetchEachFileOnce) {
  std::atomic<int> requests = 0;
  std::string header = "ETag: \"1\"";
  const test::LoopbackServer server([&](const std::string&, const test::LoopbackServer::Send& send) {
    ++requests;
    send(fmt::format("HTTP/1.1 200 OK\r\n{}\r\nContent-Length: 3\r\n\r\nnew", header));
  });
  ::setenv("XDG_CACHE_HOME", test::test_folder().c_str(), 1);
  const auto copy = [&] { EXPECT_EQ(read_file(local_copy(server.url() + "/weights"), "copy"), "new"); };
  copy();
  const int of_first = requests.exchange(0);
  copy();
  const int of_look = requests.exchange(0);
  EXPECT_GT(of_first, of_look);
  header = "ETag: \"2\"";
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 8; ++rank) ranks.emplace_back(copy);
  }
  EXPECT_EQ(requests, of_first + 7 * of_look);
  ::unsetenv("XDG_CACHE_HOME");
}

TEST(Http, RedirectsToAnotherServerLoseTokensAndSignatures) {
  std::vector<std::string> seen;
  const test::LoopbackServer other([&](const std::string& request, const test::LoopbackServer::Send& send) {
    seen.push_back(request);
    send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  });
  const test::LoopbackServer first([&](const std::string& request, const test::LoopbackServer::Send& send) {
    seen.push_back(request);
    send("HTTP/1.1 307 Elsewhere\r\nLocation: " + other.url() + "/b\r\nContent-Length: 0\r\n\r\n");
  });
  HttpRequest request{.url = parse_url(first.url() + "/a"), .headers = {{"range", "bytes=0-1"}}};
  sign_request(request, {"key", "secret", "the session"}, "us-east-1", 1);
  EXPECT_EQ(http_through_redirects(request).body, "ok");
  ASSERT_EQ(seen.size(), 2U);
  for (const char* part : {"the session", "Signature="}) {
    EXPECT_NE(seen[0].find(part), std::string::npos) << part;
    EXPECT_EQ(seen[1].find(part), std::string::npos) << part;
  }
  EXPECT_NE(seen[1].find("range: bytes=0-1"), std::string::npos);
  EXPECT_NE(seen[1].find(other.url().substr(7)), std::string::npos);  // the host that it was sent to
}

}  // namespace
}  // namespace titanium::remote
