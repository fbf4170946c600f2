#include "titanium/launch/heartbeats.h"

#include <gtest/gtest.h>

namespace titanium::launch {
namespace {

using std::chrono::seconds;

TEST(Heartbeats, ANodeWhoseCountStandsStillIsNamed) {
  const Heartbeats::Time start{};
  Heartbeats beats(3, start);
  for (int second = 1; second <= 40; ++second) {
    beats.count(0, second, start + seconds(second));
    beats.count(1, second, start + seconds(second));
    beats.count(2, std::min(second, 5), start + seconds(second));
    EXPECT_EQ(beats.silent_node(start + seconds(second)), second < 35 ? std::nullopt : std::optional(2)) << second;
  }
}

TEST(Heartbeats, ANodeThatIsNeverHeardIsNamed) {
  const Heartbeats::Time start{};
  Heartbeats beats(2, start);
  beats.count(0, 1, start + seconds(20));
  beats.count(1, 0, start + seconds(20));
  EXPECT_FALSE(beats.silent_node(start + seconds(29)));
  EXPECT_EQ(beats.silent_node(start + seconds(30)), 1);
}

}  // namespace
}  // namespace titanium::launch
