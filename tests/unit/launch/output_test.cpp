#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/support/file_size_limit.h"
#include "tests/support/test_folder.h"
#include "titanium/base/files/file.h"
#include "titanium/launch/failure.h"
#include "titanium/launch/rank_output.h"

namespace titanium::launch {
namespace {

struct Shown {
  std::string out, err;
  Writer writer() {
    return [this](Stream stream, std::string_view line) { (stream == Stream::kOut ? out : err) += line; };
  }
};

TEST(RankOutput, EveryLineGetsThePrefixOfItsRank) {
  Shown shown;
  const Writer writer = shown.writer();
  RankOutput output(3, /*shown=*/true, "", writer);
  output.receive(Stream::kOut, "first\nsec");
  output.receive(Stream::kErr, "problem\n");
  EXPECT_EQ(shown.out, "[rank3]:first\n");
  output.receive(Stream::kOut, "ond\n\nlast");
  output.finish();
  EXPECT_EQ(shown.out, "[rank3]:first\n[rank3]:second\n[rank3]:\n[rank3]:last\n");
  EXPECT_EQ(shown.err, "[rank3]:problem\n");
}

TEST(RankOutput, LinesInJsonAreHandedOnAndAllOthersPutIntoObjects) {
  Shown shown;
  const Writer writer = shown.writer();
  RankOutput output(3, /*shown=*/true, "", writer, LogFormat::kJson);
  const auto last = [](const std::string& text) {
    return nlohmann::json::parse(text.substr(text.rfind('\n', text.size() - 2) + 1));
  };
  output.receive(Stream::kOut, R"({"level": "INFO", "rank": 3, "step": 7, "message": "hi"})"
                               "\n");
  EXPECT_EQ(shown.out, R"({"level":"INFO","rank":3,"step":7,"message":"hi"})"
                       "\n");
  output.receive(Stream::kErr, R"({"level": "ERROR", "rank": null, "message": "titanium: no"})"
                               "\n");
  EXPECT_EQ(shown.err, R"({"level":"ERROR","rank":3,"message":"titanium: no"})"
                       "\n");
  output.receive(Stream::kOut, "node:1:2 [0] NCCL WARN \x1b[31mslow\x1b[0m\n");
  const auto nccl = last(shown.out);
  EXPECT_EQ(nccl["source"], "nccl");
  EXPECT_EQ(nccl["level"], "WARNING");
  EXPECT_EQ(nccl["rank"], 3);
  EXPECT_EQ(nccl["message"], "node:1:2 [0] NCCL WARN slow");
  output.receive(Stream::kErr, "{\xff no JSON\n");
  EXPECT_EQ(last(shown.err)["message"], "{\ufffd no JSON");
  EXPECT_EQ(last(shown.err)["source"], "stderr");
}

TEST(RankOutput, ARankThatIsNotShownKeepsItsLogAndItsLastLines) {
  const auto folder = test::test_folder();
  Shown shown;
  const Writer writer = shown.writer();
  RankOutput output(0, /*shown=*/false, folder / "0", writer);
  for (int i = 1; i <= 25; ++i) output.receive(Stream::kOut, fmt::format("line {}\n", i));
  output.receive(Stream::kErr, "the end");
  output.finish();
  EXPECT_EQ(shown.out + shown.err, "");
  const auto last = output.last_lines();
  ASSERT_EQ(last.size(), RankOutput::kLastLines);
  EXPECT_EQ(last.front(), "line 7");
  EXPECT_EQ(last.back(), "the end");
  EXPECT_EQ(read_file(folder / "0/stderr.log", "log"), "the end");
  EXPECT_EQ(read_file(folder / "0/stdout.log", "log").substr(0, 14), "line 1\nline 2\n");
}

TEST(RankOutput, ALineWithoutEndIsHandedOnInPieces) {
  Shown shown;
  const Writer writer = shown.writer();
  RankOutput output(0, /*shown=*/true, "", writer);
  output.receive(Stream::kOut, std::string(LineSplitter::kLongestLine + 5, 'x'));
  EXPECT_EQ(shown.out.size(), LineSplitter::kLongestLine + std::string("[rank0]:\n").size());
  output.receive(Stream::kOut, "y\n");
  EXPECT_TRUE(shown.out.ends_with("[rank0]:xxxxxy\n"));
}

// A disk that is full for a while.
TEST(RankOutput, ALogThatWasCutSaysSo) {
  const auto folder = test::test_folder();
  Shown shown;
  const Writer writer = shown.writer();
  const std::string much(GrowingFile::kMostKept, 'x');
  {
    RankOutput output(0, /*shown=*/false, folder, writer);
    output.receive(Stream::kOut, "before\n");
    {
      const test::FileSizeLimit full(7);
      output.receive(Stream::kOut, much);
      output.receive(Stream::kOut, "lost\n");
    }
    output.receive(Stream::kOut, "after\n");
  }
  EXPECT_EQ(read_file(folder / "stdout.log", "log"),
            "before\n" + much +
                "\n[titanium launch: 5 bytes are missing here, because this file could not be written]\nafter\n");
}

TEST(Failure, TheReportNamesRankCauseAndLastLines) {
  Failure failure;
  failure.node = 1;
  failure.rank = 5;
  failure.pid = 77;
  failure.exit = {3, 0};
  failure.last_lines = {"one", "two"};
  EXPECT_EQ(failure.report(true),
            "rank 5 (node 1, process 77) failed first: exit code 3. Its last lines:\n[rank5]:one\n[rank5]:two\n");
  EXPECT_EQ(failure.report(false), "rank 5 (node 1, process 77) failed first: exit code 3.\n");
  failure.exit = {0, SIGKILL};
  EXPECT_NE(failure.report(true).find("SIGKILL. If nobody sent it, the kernel did"), std::string::npos);
  failure.exit = {0, SIGSEGV};
  EXPECT_NE(failure.report(true).find("failed first: SIGSEGV."), std::string::npos);
}

TEST(Failure, OfALostNodeNamesNoRank) {
  const Failure failure = Failure::from_json(Failure::lost_node(2).to_json()).value();
  EXPECT_EQ(failure.report(true), "node 2 is lost: its launcher has not been heard for a while.\n");
  EXPECT_EQ(failure.exit.exit_code(), 1);
}

TEST(Failure, TravelsBetweenNodes) {
  Failure failure;
  failure.node = 1;
  failure.rank = 5;
  failure.pid = 77;
  failure.exit = {0, SIGABRT};
  failure.stopped = true;
  failure.last_lines = {"caf\xc3\xa9", "not UTF-8: \xff"};
  failure.log_folder = "logs/5";
  const Failure arrived = Failure::from_json(failure.to_json()).value();
  EXPECT_EQ(arrived.last_lines.at(0), "caf\xc3\xa9");
  EXPECT_EQ(arrived.last_lines.at(1), "not UTF-8: \xef\xbf\xbd");
  EXPECT_EQ(arrived.exit.exit_code(), 134);
  EXPECT_TRUE(arrived.stopped);
  failure.last_lines = arrived.last_lines;
  EXPECT_EQ(arrived.report(true), failure.report(true));
}

// Whoever reaches the store can write there.
TEST(Failure, WhatIsNoReportIsRefused) {
  const std::string good = Failure::lost_node(2).to_json();
  ASSERT_TRUE(Failure::from_json(good));
  const auto with = [&](const std::string& field, const std::string& value) {
    const size_t begin = good.find("\"" + field + "\":") + field.size() + 3;
    return Failure::from_json(good.substr(0, begin) + value + good.substr(good.find_first_of(",}", begin)));
  };
  EXPECT_TRUE(with("code", "3"));
  EXPECT_FALSE(with("code", "256")) << "would be exit code 0";
  EXPECT_FALSE(with("code", "0")) << "no failure";
  EXPECT_FALSE(with("signal", "-3"));
  EXPECT_FALSE(with("node", "\"two\""));
  EXPECT_FALSE(with("node", "1e300"));
  EXPECT_FALSE(with("rank", "1.5"));
  EXPECT_FALSE(with("pid", "4294967297")) << "would be process 1";
  EXPECT_FALSE(with("last_lines", "7"));
  for (const std::string text : {"", "x", "[]", "7", "{}", "{\"node\":", "\xff"})
    EXPECT_FALSE(Failure::from_json(text));
  EXPECT_FALSE(Failure::from_json(std::string(1'000'000, '[')));
  EXPECT_FALSE(Failure::from_json(std::string(100 << 20, ' ') + good));
  EXPECT_EQ(with("log_folder", "\"a\\u001bb\"")->log_folder, "a\\x1bb");
}

}  // namespace
}  // namespace titanium::launch
