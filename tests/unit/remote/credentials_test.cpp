// Credentials that are given for a while, where those of containers may be asked for, and profiles of Amazon's tools.
#include <atomic>
#include <cstdlib>
#include <future>
#include <thread>

#include "tests/support/test_folder.h"
#include "titanium/base/files/file.h"
#include "titanium/remote/stores/aws_signature.h"
#include "titanium/remote/stores/role_credentials.h"
#include "titanium/remote/transport/lease.h"

namespace titanium::remote {
namespace {

// What a lease gives when the time stands at `time`, and who asks gets what `answer` returns.
class Leases : public testing::Test {
 protected:
  Leased<int> leased_{[this] {
                        ++asked_;
                        return answer_();
                      },
                      [this] { return time_.load(); }};
  std::function<Lease<int>()> answer_;
  std::atomic<int64_t> time_ = 1'000'000;
  std::atomic<int> asked_ = 0;
};

TEST_F(Leases, AreRenewedBeforeTheyExpire) {
  answer_ = [&] { return Lease<int>{asked_, time_ + 3'600}; };
  EXPECT_EQ(leased_.get(), 1);
  time_ += 3'299;
  EXPECT_EQ(leased_.get(), 1);
  time_ += 1;
  EXPECT_EQ(leased_.get(), 2);
  answer_ = [&] { return Lease<int>{asked_, time_ + 20}; };
  time_ += 3'600;
  EXPECT_EQ(leased_.get(), 3);
  time_ += 10;
  EXPECT_EQ(leased_.get(), 4);
}

TEST_F(Leases, OneAsksAndAllThatWaitGetItsFailure) {
  std::promise<void> fails;
  answer_ = [&, until = fails.get_future().share()]() -> Lease<int> {
    until.wait();
    throw Error("nobody answers.");
  };
  std::vector<std::future<int>> readers;
  for (int i = 0; i < 8; ++i) readers.push_back(std::async(std::launch::async, [&] { return leased_.get(); }));
  while (asked_ == 0) std::this_thread::yield();
  fails.set_value();
  for (auto& reader : readers) EXPECT_THROW(reader.get(), Error);
  EXPECT_EQ(asked_, 1);
  answer_ = [] { return Lease<int>{7}; };
  time_ += 5;
  EXPECT_EQ(leased_.get(), 7);
}

TEST_F(Leases, WhatIsStillValidIsGivenWhileSomebodyAsks) {
  answer_ = [&] { return Lease<int>{asked_, time_ + 3'600}; };
  EXPECT_EQ(leased_.get(), 1);
  time_ += 3'500;
  std::promise<void> ends;
  answer_ = [&, until = ends.get_future().share()] {
    until.wait();
    return Lease<int>{asked_, time_ + 3'600};
  };
  auto renewal = std::async(std::launch::async, [&] { return leased_.get(); });
  while (asked_ == 1) std::this_thread::yield();
  EXPECT_EQ(leased_.get(), 1);
  ends.set_value();
  EXPECT_EQ(renewal.get(), 2);
  EXPECT_EQ(leased_.get(), 2);
}

TEST_F(Leases, AFailedRenewalLastsUntilTheyExpire) {
  answer_ = [&] { return Lease<int>{asked_, time_ + 100}; };
  EXPECT_EQ(leased_.get(), 1);
  answer_ = [] { return Lease<int>{}; };  // nobody answers any more
  time_ += 96;
  EXPECT_EQ(leased_.get(), 1);
  time_ += 3;
  EXPECT_EQ(leased_.get(), 1);
  EXPECT_EQ(asked_, 2);
  time_ += 1;
  EXPECT_THROW(leased_.get(), Error);
  EXPECT_EQ(asked_, 3);
}

TEST(Roles, TheTokenOfAContainerGoesToThisMachineOrOverHttps) {
  for (const char* url :
       {"http://127.0.0.1/x", "http://127.0.0.1:1234/x", "http://localhost:80", "http://169.254.170.2/v2",
        "http://169.254.170.23/v1", "http://[fd00:ec2::23]/v1", "http://[fd00:ec2::23]:80/v1", "https://example.org/x"})
    EXPECT_TRUE(may_get_container_token(parse_url(url))) << url;
  for (const char* url :
       {"http://example.org/x", "http://127.0.0.1:1@example.org/x", "http://127.0.0.1@example.org:80/x",
        "http://169.254.170.2:1@example.org/", "http://169.254.170.2.example.org/", "http://[fd00:ec2::24]/",
        "http://[fd00:ec2::23]:1@example.org/"})
    EXPECT_FALSE(may_get_container_token(parse_url(url))) << url;
}

TEST(Profiles, TheDefaultOneHasTwoNamesInTheConfiguration) {
  const std::filesystem::path file = test::test_folder() / "config";
  ::setenv("AWS_CONFIG_FILE", file.c_str(), 1);
  ::setenv("AWS_SHARED_CREDENTIALS_FILE", (test::test_folder() / "none").c_str(), 1);
  for (const char* section : {"default", "profile default"}) {
    write_file_atomically(file, fmt::format("[{}]\nregion = eu-north-1\naws_access_key_id = key\n", section));
    EXPECT_EQ(aws_region_of_environment(), "eu-north-1") << section;
    EXPECT_EQ(aws_credentials_of_environment().key, "key") << section;
  }
  for (const char* name : {"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"}) ::unsetenv(name);
}

TEST(Profiles, NameTheServerUnlessTheEnvironmentDoes) {
  const std::filesystem::path file = test::test_folder() / "config";
  write_file_atomically(file,
                        "[default]\nregion = x\n[profile store]\nendpoint_url = http://127.0.0.1:9000\n"
                        "s3 =\n  addressing_style = path\n");
  ::setenv("AWS_CONFIG_FILE", file.c_str(), 1);
  EXPECT_EQ(aws_endpoint_of_environment(), "");
  ::setenv("AWS_PROFILE", "store", 1);
  EXPECT_EQ(aws_endpoint_of_environment(), "http://127.0.0.1:9000");
  ::setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1", 1);
  EXPECT_EQ(aws_endpoint_of_environment(), "http://127.0.0.1:1");
  ::setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:2", 1);
  EXPECT_EQ(aws_endpoint_of_environment(), "http://127.0.0.1:2");
  ::setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true", 1);
  EXPECT_EQ(aws_endpoint_of_environment(), "");
  for (const char* name : {"AWS_CONFIG_FILE", "AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3",
                           "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"})
    ::unsetenv(name);
}

}  // namespace
}  // namespace titanium::remote
