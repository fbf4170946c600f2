#include "titanium/schedule/check.h"

#include "tests/unit/schedule/random_tables.h"
#include "tests/unit/schedule/shapes.h"
#include "titanium/schedule/csv.h"

namespace titanium::schedule {
namespace {

std::string refused(const std::string& csv) {
  return refusal([&] { parse_csv(csv, "s.csv"); });
}

TEST(Check, NamesRankPositionAndAction) {
  EXPECT_EQ(refused("0F0,0B0\n1F0,1B0\n"), "");
  EXPECT_EQ(refused("0F0,0F0,0B0\n1F0,1B0\n"), "s.csv: Rank 0, action 2 (0F0): the same stands already at action 1.");
  EXPECT_EQ(refused("0F0,0B0\n1B0,1F0\n"), "s.csv: Rank 1, action 1 (1B0): it stands before 1F0, which it needs.");
  EXPECT_EQ(refused("0F0,0W0,0I0\n1F0,1B0\n"), "s.csv: Rank 0, action 2 (0W0): it stands before 0I0, which it needs.");
  EXPECT_EQ(refused("0F0,0B0\n1F0,1B0,0B0\n"), "s.csv: Rank 1, action 3 (0B0): stage 0 belongs to rank 0.");
  EXPECT_EQ(refused("0F0,0B0\n1F0\n"),
            "s.csv: Rank 1: the backward of stage 1 and micro-batch 0 is missing: 1B0, or 1I0 and 1W0.");
  EXPECT_EQ(refused("0B0\n1F0,1B0\n"), "s.csv: Rank 0: 0F0 is missing.");
  EXPECT_EQ(refused("0F0,0I0\n1F0,1B0\n"), "s.csv: Rank 0: 0W0 is missing.");
  EXPECT_EQ(refused("0F0,0B0,0W0\n1F0,1B0\n"),
            "s.csv: Rank 0, action 3 (0W0): 0B0 has computed that already. Use either B, or I and W.");
  EXPECT_EQ(refused("0F0,0B0,0F9,0B9\n1F0,1B0\n"), "s.csv: Rank 0: 0F1 is missing.");
}

TEST(Check, RanksThatWaitForEachOtherAreNamed) {
  EXPECT_EQ(refused("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"),
            "s.csv: The ranks wait for each other: rank 0 waits at its action 2 (0B0) for 1B0, which is action 3 of "
            "rank 1; rank 1 waits at its action 2 (1F1) for 0F1, which is action 3 of rank 0. Change the order of "
            "these actions.");
  // Stage order against list order on one rank: it waits for itself.
  EXPECT_EQ(refused("1F0,0F0,1B0,0B0\n"),
            "s.csv: The ranks wait for each other: rank 0 waits at its action 1 (1F0) for 0F0, which is action 2 of "
            "rank 0. Change the order of these actions.");
}

TEST(Check, PairsAreAForwardAndABackwardOfAnotherMicroBatch) {
  EXPECT_EQ(refused("0F0,1F0,0F1,(1F1;1B0)OVERLAP_F_B,0B0,1B1,0B1\n"), "");
  EXPECT_EQ(refused("0F0,1F0,1B0,(0F1;1F1)OVERLAP_F_B,0B0,1B1,0B1\n"),
            "s.csv: Rank 0, action 4 (0F1): an overlapped pair is a forward (F) and a backward (B or I).");
  EXPECT_EQ(refused("0F0,(1F0;1B0)OVERLAP_F_B,0B0\n"),
            "s.csv: Rank 0, action 2 (1F0): it cannot overlap with 1B0, which needs it.");
  // Both halves must be ready: 1B0 is not, while its partner waits.
  EXPECT_NE(refused("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1F1,1B0,1B1\n").find("wait for each other"), std::string::npos);
}

TEST(Check, LayoutsMustBeWhole) {
  Table table = gpipe({2, 1, 1});
  table.owner[1] = 2;
  EXPECT_EQ(refusal([&] { check_table(table); }), "Stage 1 is placed on rank 2, but there are 2 ranks.");
  EXPECT_EQ(refusal([] { check_table(Table{}); }), "The table is empty: it has 0 ranks, 0 stages and 0 micro-batches.");
  table = gpipe({2, 1, 1});
  table.ranks[0][0].stage = 2;
  EXPECT_EQ(refusal([&] { check_table(table); }),
            "Rank 0, action 1 (2F0): there is no stage 2; stages go from 0 to 1.");
  table = gpipe({2, 1, 1});
  table.ranks[0][0].micro_batch = -1;
  EXPECT_EQ(refusal([&] { check_table(table); }),
            "Rank 0, action 1 (0F-1): there is no micro-batch -1; they go from 0 to 0.");
  table = gpipe({2, 1, 1});
  table.backward = false;
  EXPECT_EQ(refusal([&] { check_table(table); }), "Rank 0, action 2 (0B0): a table of forwards has no backward.");
  EXPECT_EQ(refused("0F0,0B0\n\n1F0,1B0\n"), "s.csv: Rank 1 has nothing to do. Give it a stage, or use fewer ranks.");
}

TEST(Check, MemoryHasALimit) {
  const Table table = one_forward_one_backward({4, 1, 8});
  EXPECT_NO_THROW(check_table(table, {.live_activations = 4}));
  EXPECT_EQ(refusal([&] { check_table(table, {.live_activations = 3}); }),
            "Rank 0 would hold 4 activations at once, but 3 are allowed. Put backwards earlier.");
}

// What check_table promises, by brute force: a graph of all that must come before something else, built step by step.
class Graph {
 public:
  // False if an action is out of place, there twice, or in half a pair.
  bool add_lists(const Table& table) {
    for (int rank = 0; rank < static_cast<int>(table.ranks.size()); ++rank) {
      const auto& list = table.ranks[rank];
      if (list.empty()) return false;
      for (size_t i = 0; i < list.size(); ++i) {
        const auto [stage, kind, micro_batch, overlaps_next] = list[i];
        if (stage < 0 || stage >= table.stages() || table.owner[stage] != rank) return false;
        if (!step_.emplace(std::tuple(stage, kind, micro_batch), steps_).second) return false;
        if (overlaps_next) {
          if (kind != Kind::kForward || i + 1 == list.size() || list[i + 1].overlaps_next) return false;
          if (list[i + 1].kind != Kind::kBackward && list[i + 1].kind != Kind::kInput) return false;
          continue;  // the next action is in the same step
        }
        if (i + 1 < list.size()) edges_.insert({steps_, steps_ + 1});
        ++steps_;
      }
    }
    return true;
  }

  // False if something is missing or too much.
  bool add_needs(const Table& table) {
    size_t expected = 0;
    for (int stage = table.stages() - 1; stage >= 0; --stage) {
      for (int i = 0; i < table.micro_batches; ++i) {
        const int f = find(stage, Kind::kForward, i), w = find(stage, Kind::kWeight, i);
        const int in = find(stage, Kind::kInput, i), b = find(stage, Kind::kBackward, i);
        if (f < 0 || (b < 0) == (in < 0) || (in < 0) != (w < 0)) return false;
        expected += b < 0 ? 3 : 2;
        edges_.insert({f, std::max(in, b)});
        if (w >= 0) edges_.insert({in, w});
        if (stage + 1 == table.stages()) continue;
        edges_.insert({f, find(stage + 1, Kind::kForward, i)});
        edges_.insert(
            {std::max(find(stage + 1, Kind::kInput, i), find(stage + 1, Kind::kBackward, i)), std::max(in, b)});
      }
    }
    return expected == step_.size();
  }

  bool has_circle() const {
    std::vector<int> incoming(steps_, 0), open;
    std::vector<std::vector<int>> next(steps_);
    for (const auto& [from, to] : edges_) {
      ++incoming[to];
      next[from].push_back(to);
    }
    for (int i = 0; i < steps_; ++i) {
      if (incoming[i] == 0) open.push_back(i);
    }
    int done = 0;
    for (; !open.empty(); ++done) {
      const int step = open.back();
      open.pop_back();
      for (const int to : next[step]) {
        if (--incoming[to] == 0) open.push_back(to);
      }
    }
    return done < steps_;
  }

 private:
  int find(int stage, Kind kind, int micro_batch) const {
    const auto found = step_.find({stage, kind, micro_batch});
    return found == step_.end() ? -1 : found->second;
  }

  std::map<std::tuple<int, Kind, int>, int> step_;
  int steps_ = 0;
  std::set<std::pair<int, int>> edges_;
};

bool valid_by_definition(const Table& table) {
  Graph graph;
  return graph.add_lists(table) && graph.add_needs(table) && !graph.has_circle();
}

TEST(CheckFuzz, AcceptsExactlyTheTablesThatAreValidByDefinition) {
  std::mt19937 random(1);
  int valid = 0, invalid = 0;
  for (int i = 0; i < 4000; ++i) {
    Table table = random_table(random);
    ASSERT_EQ(refusal([&] { check_table(table); }), "");
    ASSERT_TRUE(valid_by_definition(table));
    if (i % 2) pair_up(table, random);
    for (int changes = static_cast<int>(random() % 3); changes > 0; --changes) damage(table, random);
    const std::string sentence = refusal([&] { check_table(table); });
    ASSERT_EQ(sentence.empty(), valid_by_definition(table)) << to_csv(table) << sentence;
    ++(sentence.empty() ? valid : invalid);
  }
  EXPECT_GT(valid, 1000);
  EXPECT_GT(invalid, 1000);
}

}  // namespace
}  // namespace titanium::schedule
