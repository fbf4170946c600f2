#include "titanium/schedule/csv.h"

#include "tests/support/test_folder.h"
#include "tests/unit/schedule/random_tables.h"
#include "tests/unit/schedule/shapes.h"

namespace titanium::schedule {
namespace {

std::string refused(const std::string& csv) {
  return refusal([&] { parse_csv(csv, "s.csv"); });
}

TEST(Csv, TablesComeBackAsTheyWere) {
  for_all_shapes([](const Schedule& schedule, const Shape& shape) {
    const Table table = build_table(schedule, shape);
    const Table again = parse_csv(to_csv(table), "s.csv");
    EXPECT_EQ(again.ranks, table.ranks);
    EXPECT_EQ(again.owner, table.owner);
    EXPECT_EQ(again.micro_batches, table.micro_batches);
  });
}

TEST(Csv, IdleSlotsBlanksQuotesAndWindowsLinesMeanNothing) {
  const Table table = parse_csv("0F0,,,\"0B0\",\r\n, 1F0 ,1B0\r\n\r\n\n", "s.csv");
  EXPECT_EQ(to_csv(table), "0F0,0B0\n1F0,1B0\n");
}

TEST(Csv, BadCellsAreNamedByLineAndCell) {
  const std::string hint =
      " Write stage, F, I, W or B, and micro-batch, such as 0F0 or 2B1, or a pair (0F4;3B1)OVERLAP_F_B.";
  const auto with_hint = [&](const char* text) { return std::string("s.csv: ") + text + hint; };
  EXPECT_EQ(refused("0F0,0B0\n1F0,,1X0\n"), with_hint("line 2, cell 3: '1X0' is not an action."));
  EXPECT_EQ(refused("0F\n"), with_hint("line 1, cell 1: '0F' is not an action."));
  EXPECT_EQ(refused("F0\n"), with_hint("line 1, cell 1: 'F0' is not an action."));
  EXPECT_EQ(refused("7\n"), with_hint("line 1, cell 1: '7' is not an action."));
  EXPECT_EQ(refused("0F0x\n"), with_hint("line 1, cell 1: '0F0x' is not an action."));
  EXPECT_EQ(refused("0F-1\n"), with_hint("line 1, cell 1: '0F-1' is not an action."));
  EXPECT_EQ(refused("0F99999999999\n"), with_hint("line 1, cell 1: '0F99999999999' is not an action."));
  EXPECT_EQ(refused("(0F0)OVERLAP_F_B\n"), with_hint("line 1, cell 1: '(0F0)OVERLAP_F_B' is not an action."));
  EXPECT_EQ(refused("(0F0;1B0;\n"), with_hint("line 1, cell 1: '(0F0;1B0;' is not an action."));
  EXPECT_EQ(refused("0F0,0SEND_F0\n"),
            "s.csv: line 1, cell 2: '0SEND_F0' is not an action. Communication is inferred: write computations only "
            "(PyTorch's format=\"compute_only\").");
}

TEST(Csv, HolesAreFoundEvenFarOut) {
  EXPECT_EQ(refused("0F0,0B0,3F0,3B0\n"), "s.csv: no line has stage 1, but there is a stage 3.");
  EXPECT_EQ(refused("0F0,0B0,0F16000000,0B16000000\n"), "s.csv: Rank 0: 0F1 is missing.");
  EXPECT_EQ(refused("\n"), "s.csv: The table is empty: it has 1 ranks, 0 stages and 0 micro-batches.");
}

TEST(Csv, TablesMustFitTheRun) {
  const Table table = interleaved_1f1b({2, 2, 4});
  const auto fits = [&](const char* name, int ranks, int micro_batches) {
    return refusal([&] { check_fits(table, find_schedule(name), ranks, micro_batches, "s.csv"); });
  };
  EXPECT_EQ(fits("PipelineScheduleMulti", 2, 4), "");
  EXPECT_EQ(fits("PipelineScheduleMulti", 4, 4), "s.csv is a schedule for 2 ranks, but the run has 4.");
  EXPECT_EQ(fits("PipelineScheduleMulti", 2, 8), "s.csv is a schedule for 4 micro-batches, but the run has 8.");
  EXPECT_EQ(fits("PipelineScheduleSingle", 2, 4), "PipelineScheduleSingle wants exactly 1 stage per rank, not 2.");
  const Table uneven = parse_csv("0F0,1F0,1B0,0B0\n2F0,2B0\n", "s.csv");
  EXPECT_NE(refusal([&] { check_fits(uneven, find_schedule("PipelineScheduleMulti"), 2, 1, "s.csv"); }), "");
}

TEST(Csv, FilesAreReadAndMissingOnesNamed) {
  const auto folder = test::test_folder();
  std::ofstream(folder / "schedule.csv") << "0F0,0B0\n";
  EXPECT_EQ(to_csv(read_csv(folder / "schedule.csv")), "0F0,0B0\n");
  EXPECT_EQ(refusal([&] { read_csv(folder / "none.csv"); }),
            fmt::format("pipeline schedule {} does not exist. Check the path.", (folder / "none.csv").string()));
}

TEST(CsvFuzz, DamagedFilesAreRefusedOrValidButNeverHarm) {
  std::mt19937 random(2);
  int valid = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = to_csv(random_table(random));
    for (int changes = 1 + static_cast<int>(random() % 4); changes > 0 && !text.empty(); --changes) {
      const size_t at = random() % text.size();
      const char letter = "0123456789FIWB,\n;()\r \"-O\xff"[random() % 25];
      switch (random() % 3) {
        case 0:
          text[at] = letter;
          break;
        case 1:
          text.insert(text.begin() + static_cast<std::ptrdiff_t>(at), letter);
          break;
        case 2:
          text.erase(at, 1 + random() % 3);
          break;
      }
    }
    valid += refused(text).empty();
  }
  EXPECT_GT(valid, 10);
  EXPECT_LT(valid, 1500);
}

}  // namespace
}  // namespace titanium::schedule
