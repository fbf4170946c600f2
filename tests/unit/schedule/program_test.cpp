#include "titanium/schedule/program.h"

#include "tests/unit/schedule/random_tables.h"
#include "tests/unit/schedule/run_programs.h"
#include "tests/unit/schedule/shapes.h"
#include "titanium/schedule/csv.h"
#include "titanium/schedule/timeline.h"

namespace titanium::schedule {
namespace {

constexpr Transport kTransports[] = {Transport::kRendezvous, Transport::kPosted, Transport::kBuffered};

std::string text(const Program& program) {
  std::vector<std::string> words;
  for (const Instruction& instruction : program) words.push_back(to_string(instruction));
  return fmt::format("{}", fmt::join(words, " "));
}

bool communicates(const Instruction& i) { return i.peer >= 0; }
bool receives(const Instruction& i) { return i.op == Op::kReceiveActivation || i.op == Op::kReceiveGradient; }

// The actions of the table in their order, with transfers around them, that come to an end under every rule.
void expect_sound(const Table& table, int ahead) {
  const std::vector<Program> programs = make_programs(table, ahead);
  ASSERT_EQ(programs.size(), table.ranks.size());
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    std::vector<Action> actions;
    for (const Instruction& i : programs[rank]) {
      if (communicates(i) || i.op == Op::kReduceGradients) continue;
      actions.push_back({i.stage, static_cast<Kind>(i.op), i.micro_batch, i.overlaps_next});
    }
    EXPECT_EQ(actions, table.ranks[rank]);
  }
  for (const Transport transport : kTransports) {
    EXPECT_EQ(refusal([&] { run_programs(programs, table.stages(), transport); }), "");
  }
}

// The largest number of steps between a receive and the action that takes it.
int farthest_receive(const Program& program) {
  int step = 0, farthest = 0;
  std::map<std::tuple<int, int, bool>, int> posted;
  for (size_t i = 0; i < program.size(); ++i) {
    const Instruction& instruction = program[i];
    const int stage = instruction.stage, micro_batch = instruction.micro_batch;
    if (receives(instruction)) posted[{stage, micro_batch, instruction.op == Op::kReceiveActivation}] = step;
    if (communicates(instruction) || instruction.op == Op::kReduceGradients) continue;
    const auto found = posted.find({stage, micro_batch, instruction.op == Op::kForward});
    if (found != posted.end() && instruction.op != Op::kBackwardWeight) {
      farthest = std::max(farthest, step - found->second);
    }
    if (!instruction.overlaps_next) ++step;
  }
  return farthest;
}

TEST(Program, SendsAndReceivesFollowFromTheTable) {
  const auto programs = make_programs(one_forward_one_backward({2, 1, 2}));
  EXPECT_EQ(text(programs[0]), "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE_GRAD");
  EXPECT_EQ(text(programs[1]), "1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1B1 1SEND_B1 1REDUCE_GRAD");
  EXPECT_EQ(programs[0][1], (Instruction{Op::kSendActivation, 0, 0, 1}));
  EXPECT_EQ(programs[1][0], (Instruction{Op::kReceiveActivation, 1, 0, 0}));
}

TEST(Program, TheTurnOfAVIsNotSent) {
  const auto programs = make_programs(zbv_zero_bubble({2, 2, 3}));
  for (const Instruction& i : programs[1]) {
    EXPECT_FALSE(i.op == Op::kSendActivation && i.stage == 1) << to_string(i);
    EXPECT_FALSE(i.op == Op::kSendGradient && i.stage == 2) << to_string(i);
  }
}

TEST(Program, EveryScheduleRunsUnderEveryTransport) {
  for_all_shapes([](const Schedule& schedule, const Shape& shape) {
    const Table table = build_table(schedule, shape);
    for (const int ahead : {0, 1, 2, 100}) expect_sound(table, ahead);
    expect_sound(forwards_only(table.owner, shape.ranks, shape.micro_batches), 1);
  });
}

TEST(Program, ReceivesArePostedAtMostAsFarAheadAsAsked) {
  for_all_shapes([](const Schedule& schedule, const Shape& shape) {
    for (const int ahead : {0, 1, 2}) {
      for (const Program& program : make_programs(build_table(schedule, shape), ahead)) {
        EXPECT_LE(farthest_receive(program), ahead);
      }
    }
  });
}

TEST(Program, GradientsOfEachStageAreReducedOnceAfterTheLastWeights) {
  for_all_shapes([](const Schedule& schedule, const Shape& shape) {
    const Table table = build_table(schedule, shape);
    for (const Program& program : make_programs(table)) {
      std::map<int, int> weights;
      std::set<int> reduced;
      for (const Instruction& i : program) {
        if (i.op == Op::kBackward || i.op == Op::kBackwardWeight) {
          ++weights[i.stage];
          EXPECT_FALSE(reduced.contains(i.stage));
        }
        if (i.op != Op::kReduceGradients) continue;
        EXPECT_EQ(weights[i.stage], shape.micro_batches);
        EXPECT_TRUE(reduced.insert(i.stage).second);
      }
      EXPECT_EQ(static_cast<int>(reduced.size()), shape.stages_per_rank);
    }
  });
}

TEST(Program, StopsAreFoundAndNamed) {
  // Both send first: harmless with buffers, the end of it without.
  const std::vector<Program> programs = {
      {{Op::kForward, 0, 0}, {Op::kSendActivation, 0, 0, 1}, {Op::kReceiveActivation, 2, 0, 1}},
      {{Op::kSendActivation, 1, 0, 0}, {Op::kReceiveActivation, 1, 0, 0}}};
  EXPECT_EQ(refusal([&] { run_programs(programs, 3, Transport::kBuffered); }), "");
  EXPECT_EQ(refusal([&] { run_programs(programs, 3, Transport::kRendezvous); }),
            "The programs stop: rank 0 at instruction 2 (0SEND_F0), rank 1 at instruction 1 (1SEND_F0).");
  EXPECT_EQ(refusal([&] { run_programs(programs, 3, Transport::kPosted); }),
            "Rank 0 has posted 0SEND_F0 for rank 1, which does not take part.");
  const std::vector<Program> unsent = {{{Op::kForward, 0, 0}}, {{Op::kForward, 1, 0}}};
  EXPECT_EQ(refusal([&] { run_programs(unsent, 2, Transport::kPosted); }),
            "The programs stop: rank 1 at instruction 1 (1F0).");
}

TEST(ProgramFuzz, RandomTablesRunUnderEveryTransport) {
  std::mt19937 random(3);
  for (int i = 0; i < 1000; ++i) {
    Table table = random_table(random);
    if (i % 2) pair_up(table, random);
    if (!refusal([&] { simulate(table); }).empty()) continue;  // pairs may wait for each other
    SCOPED_TRACE(to_csv(table));
    expect_sound(table, static_cast<int>(random() % 3));
  }
}

}  // namespace
}  // namespace titanium::schedule
