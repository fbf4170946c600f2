// How reads that follow each other share the time that failures may take.
#include "titanium/remote/transport/lost_time.h"

#include <gtest/gtest.h>

#include <thread>

#include "titanium/remote/transport/retry.h"

namespace titanium::remote {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// More than any pause of this test may last, and less than half of what is lost in it.
constexpr seconds kWhile{100};

// What a failure takes that ends in a while, so that nothing of it is given back before.
void lose_a_while() { lost_time_here()->add(Clock::now(), Clock::now() + 2 * kWhile); }

// Whether a read that begins then has less time than it has by itself.
bool has_less_time() { return lost_time_here() != nullptr && lost_time_here()->at(Clock::now() + 2 * kWhile) > kWhile; }

// Somebody has waited for a while already, and lost all of it.
void have_lost_a_while() {
  const Clock::time_point now = Clock::now();
  lost_time_here()->wait_since(now - 2 * kWhile);
  lost_time_here()->add(now - 2 * kWhile, now);
}

Clock::duration time_of_a_read() {
  return with_retries({.limit = 10 * kWhile}, [](Clock::time_point until) { return until - Clock::now(); });
}

TEST(LostTime, CountsOnceWhatIsLostAtTheSameTimeAndIsGivenBackByTimeWithoutFailures) {
  const auto at = [](int second) { return Clock::time_point() + seconds(second); };
  LostTime lost;
  lost.add(at(1), at(5));
  EXPECT_EQ(lost.at(at(5)), seconds(0));  // nobody waits
  lost.wait_since(at(10));
  lost.add(at(0), at(30));
  EXPECT_EQ(lost.at(at(30)), seconds(20));  // since somebody waits
  lost.add(at(20), at(40));
  lost.add(at(35), at(38));
  EXPECT_EQ(lost.at(at(40)), seconds(30));
  EXPECT_EQ(lost.at(at(33)), seconds(23));  // while a pause goes on that ends later
  EXPECT_EQ(lost.at(at(45)), seconds(25));
  lost.add(at(50), at(60));
  EXPECT_EQ(lost.at(at(60)), seconds(30));
  EXPECT_EQ(lost.at(at(95)), seconds(0));
  lost.nobody_waits();
  EXPECT_EQ(lost.at(at(60)), seconds(0));
  lost.wait_since(at(10));  // the same wait goes on
  EXPECT_EQ(lost.at(at(60)), seconds(30));
  lost.wait_since(at(61));
  EXPECT_EQ(lost.at(at(61)), seconds(0));
}

TEST(OneWait, CountsTheTimeUntilAReadSucceeds) {
  const OneWait wait;
  const auto before = Clock::now();
  int attempts = 0;
  with_retries({.first_pause = milliseconds(1)}, [&] {
    if (++attempts == 4) return;
    std::this_thread::sleep_for(milliseconds(20));
    throw TransientError("busy");
  });
  EXPECT_GE(lost_time_here()->at(Clock::now()) + (Clock::now() - before), milliseconds(60));
}

TEST(OneWait, ReadsThatFollowEachOtherShareTheTimeForFailures) {
  {
    const OneWait wait;
    EXPECT_FALSE(has_less_time());
    lose_a_while();
    EXPECT_TRUE(has_less_time());
    const OneWait inside;
    EXPECT_TRUE(has_less_time());
    EXPECT_EQ(inside.began(), wait.began());
  }
  EXPECT_FALSE(has_less_time());
  EXPECT_EQ(lost_time_here(), nullptr);
}

TEST(OneWait, AReadHasWhatIsLeftOfTheTimeForFailures) {
  const OneWait wait;
  EXPECT_GT(time_of_a_read(), 9 * kWhile);
  have_lost_a_while();
  EXPECT_LT(time_of_a_read(), 9 * kWhile);
  // What an attempt asks for in between, such as credentials, has its own time inside the attempt's.
  with_retries({.limit = 100 * kWhile}, [] { EXPECT_GT(time_of_a_read(), 9 * kWhile); });
}

TEST(OneWait, APauseThatGoesOnIsNotLostYet) {
  const OneWait wait;
  lose_a_while();
  EXPECT_GT(time_of_a_read(), 9 * kWhile);
}

TEST(OneWait, HoldsForWhatIsReadInTheBackground) {
  const OneWait wait;
  in_background(lose_a_while).get();
  EXPECT_TRUE(in_background(has_less_time).get());
  EXPECT_TRUE(has_less_time());
}

TEST(OneWait, OfThreadsThatReadForAnotherLastsAsLongAsItsStep) {
  const auto lost = std::make_shared<LostTime>();
  const auto by_reader = [&](const auto& work) {
    const OneWait part(lost);
    return work();
  };
  {
    const OneWait step;
    for (int batch = 0; batch < 2; ++batch) {
      const WaitForThreads waiting(lost);
      if (batch == 0) std::thread([&] { by_reader(lose_a_while); }).join();
      EXPECT_TRUE(by_reader(has_less_time)) << batch;
    }
    EXPECT_FALSE(by_reader(has_less_time));  // nobody waits
  }
  const WaitForThreads next_step(lost);
  EXPECT_FALSE(by_reader(has_less_time));
}

TEST(OneWait, TheSentenceOfTheLastReadTellsOfTheFailuresBeforeIt) {
  const OneWait wait;
  have_lost_a_while();
  int attempts = 0;
  std::string sentence;
  try {
    with_retries({.deadline = kWhile}, [&] {
      ++attempts;
      throw TransientError("the server is busy");
    });
  } catch (const Error& error) {
    sentence = error.what();
  }
  EXPECT_EQ(attempts, 1);
  EXPECT_TRUE(sentence.starts_with("the server is busy, after 1 attempts in ")) << sentence;
  EXPECT_NE(sentence.find(" s, with "), std::string::npos) << sentence;
  EXPECT_TRUE(sentence.ends_with(" s of failures just before. Check the network and the server.")) << sentence;
}

TEST(RetryAfter, IsANumberOfSecondsOrADate) {
  constexpr int64_t kTime = 1'445'412'480;  // Wed, 21 Oct 2015 07:28:00 GMT
  EXPECT_EQ(retry_after("120", kTime), seconds(120));
  EXPECT_EQ(retry_after("0", kTime), seconds(0));
  EXPECT_EQ(retry_after("99999999999", kTime), seconds(86'400));
  EXPECT_EQ(retry_after("Wed, 21 Oct 2015 07:28:30 GMT", kTime), seconds(30));
  EXPECT_EQ(retry_after("Wed, 21 Oct 2015 07:27:00 GMT", kTime), seconds(0));  // its clock is behind
  for (const char* other : {"", "soon", "-1 s", "1.5", "Wed, 21 Oct 2015"})
    EXPECT_EQ(retry_after(other, kTime), std::nullopt) << other;
}

TEST(RetryAfter, IsWaitedForAndNoLongerThanThereIsTime) {
  std::vector<Clock::time_point> attempts;
  const RetryPolicy policy{.first_pause = milliseconds(1), .deadline = seconds(3)};
  with_retries(policy, [&] {
    attempts.push_back(Clock::now());
    if (attempts.size() == 1) throw TransientError("busy", seconds(1));
  });
  ASSERT_EQ(attempts.size(), 2U);
  EXPECT_GE(attempts[1] - attempts[0], seconds(1));
  attempts.clear();
  const auto fail = [&] {
    attempts.push_back(Clock::now());
    throw TransientError("busy", seconds(3'600));
  };
  EXPECT_THROW(with_retries({.first_pause = milliseconds(1), .deadline = seconds(1)}, fail), Error);
  EXPECT_EQ(attempts.size(), 2U);  // the second one when the time is over
}

}  // namespace
}  // namespace titanium::remote
