#include "titanium/parallel/turns.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace titanium::parallel {
namespace {

TEST(Turns, AreTakenByOneAtATime) {
  Turns turns;
  std::string order;
  const auto piece = [&](char name, int parts) {
    return [&order, &turns, name, parts] {
      for (int i = 0; i < parts; ++i) {
        order += name;
        if (i + 1 < parts) turns.pass();
      }
    };
  };
  turns.run(piece('a', 3), piece('b', 3));
  EXPECT_EQ(order, "ababab");
  order.clear();
  turns.run(piece('a', 1), piece('b', 4));  // who is alone goes on
  EXPECT_EQ(order, "abbbb");
  order.clear();
  turns.run(piece('a', 4), piece('b', 2));
  EXPECT_EQ(order, "ababaa");
  turns.pass();  // of nobody
}

TEST(Turns, EndWithTheErrorOfEither) {
  Turns turns;
  int ended = 0;
  const auto fails = [&] {
    turns.pass();
    throw std::runtime_error("broken");
  };
  const auto ends = [&] {
    for (int i = 0; i < 3; ++i) turns.pass();
    ++ended;
  };
  EXPECT_THROW(turns.run(fails, ends), std::runtime_error);
  EXPECT_THROW(turns.run(ends, fails), std::runtime_error);
  EXPECT_EQ(ended, 2);
  turns.run(ends, ends);
  EXPECT_EQ(ended, 4);
}

}  // namespace
}  // namespace titanium::parallel
