#include "titanium/schedule/render.h"

#include "tests/unit/schedule/shapes.h"
#include "titanium/schedule/csv.h"

namespace titanium::schedule {
namespace {

TEST(Render, TextHasARowPerRankAndAColumnPerSlot) {
  const Table table = one_forward_one_backward({2, 1, 2});
  EXPECT_EQ(to_text(table, simulate(table)),
            "rank 0  0F0 0F1 .   .   0B0---- .   0B1----\n"
            "rank 1  .   1F0 1B0---- 1F1 1B1---- .   .\n");
}

TEST(Render, TextShowsPairsAndCosts) {
  const Table table = parse_csv("0F0,1F0,0F1,(1F1;1B0)OVERLAP_F_B,0B0,1B1,0B1\n", "s.csv");
  EXPECT_EQ(to_text(table, simulate(table)), "rank 0  0F0 1F0 0F1 1F1+1B0---- 0B0---- 1B1---- 0B1----\n");
  EXPECT_EQ(to_text(table, simulate(table, {.weight = 2})),
            "rank 0  0F0 1F0 0F1 1F1+1B0-------- 0B0-------- 1B1-------- 0B1--------\n");
}

TEST(Render, SvgHasABoxForEachStepAndALegendOfWhatThereIs) {
  const Table table = interleaved_zero_bubble({2, 2, 2});
  const std::string svg = to_svg(table, simulate(table), "a < b & c");
  const auto count = [&](const std::string& what) {
    size_t found = 0;
    for (size_t at = svg.find(what); at != std::string::npos; at = svg.find(what, at + 1)) ++found;
    return found;
  };
  EXPECT_TRUE(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"));
  EXPECT_EQ(count("<rect x="), table.ranks[0].size() + table.ranks[1].size() + 3);
  EXPECT_EQ(count(">3W1<"), 1u);
  EXPECT_EQ(count("W gradients of the weights"), 1u);
  EXPECT_EQ(count("B whole backward"), 0u);
  EXPECT_EQ(count("a &lt; b &amp; c"), 1u);
}

}  // namespace
}  // namespace titanium::schedule
