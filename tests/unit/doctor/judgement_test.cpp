#include <gtest/gtest.h>

#include <map>
#include <set>

#include "titanium/doctor/gpu_health.h"
#include "titanium/doctor/host_checks.h"
#include "titanium/doctor/link_checks.h"
#include "titanium/doctor/rates.h"

namespace titanium::doctor {
namespace {

constexpr uint64_t kMiB = 1 << 20;

TEST(HostJudgement, OpenFilesGrowWithTheRanks) {
  EXPECT_EQ(judge_open_files(1024, 8).severity, Severity::kFine);
  EXPECT_EQ(judge_open_files(1024, 512).severity, Severity::kError);
  EXPECT_EQ(judge_open_files(kUnlimited, 512).fact, "no limit");
  EXPECT_NE(judge_open_files(64, 1).remedy.find("ulimit -n"), std::string::npos);
}

TEST(HostJudgement, RdmaNeedsUnlimitedLockedMemory) {
  EXPECT_EQ(judge_locked_memory(8 * kMiB, false).severity, Severity::kFine);
  EXPECT_EQ(judge_locked_memory(8 * kMiB, true).severity, Severity::kError);
  EXPECT_EQ(judge_locked_memory(kUnlimited, true).severity, Severity::kFine);
  EXPECT_EQ(judge_locked_memory(1024, false).severity, Severity::kWarning);
}

TEST(HostJudgement, ContainersDefaultSharedMemoryIsTooSmallForEightRanks) {
  EXPECT_EQ(judge_shared_memory(64 * kMiB, 64 * kMiB, 2).severity, Severity::kFine);
  const Finding finding = judge_shared_memory(64 * kMiB, 64 * kMiB, 8);
  EXPECT_EQ(finding.severity, Severity::kWarning);
  EXPECT_EQ(finding.fact, "/dev/shm has 64 MiB, 64 MiB free, but 8 rank(s) of one node may need 256 MiB");
}

TEST(HostJudgement, UnknownNamesAreErrorsWhereOthersNeedThem) {
  EXPECT_EQ(check_name("127.0.0.1", "rank 0's host", false, true).severity, Severity::kFine);
  EXPECT_EQ(check_name("127.0.0.1", "rank 0's host", true, true).severity, Severity::kWarning);
  EXPECT_EQ(check_name("127.0.0.1", "this machine's name", true, false).severity, Severity::kWarning);
  EXPECT_EQ(check_name("no-such-host.invalid", "this machine's name", true, false).severity, Severity::kWarning);
  const Finding finding = check_name("no-such-host.invalid", "rank 0's host", true, true);
  EXPECT_EQ(finding.severity, Severity::kError);
  EXPECT_TRUE(finding.fact.starts_with("rank 0's host no-such-host.invalid cannot be resolved ("));
}

TEST(GpuJudgement, ThrottlingErrorsAndForeignMemoryAreNamed) {
  GpuHealth health{.driver = "580.1", .clock_mhz = 1980, .most_clock_mhz = 1980, .uncorrected_errors = 0};
  for (const Finding& finding : judge_gpu_health(health, 0)) EXPECT_EQ(finding.severity, Severity::kFine);
  health.throttle_reasons = 0x4 | 0x40;  // the power cap is normal under load
  health.uncorrected_errors = 2;
  health.used_bytes = uint64_t{40} << 30;
  const std::vector<Finding> findings = judge_gpu_health(health, uint64_t{1} << 30);
  ASSERT_EQ(findings.size(), 4U);
  EXPECT_EQ(findings[0].fact, "580.1");
  EXPECT_NE(findings[1].fact.find("throttled: too hot (hardware)"), std::string::npos);
  EXPECT_EQ(findings[2].severity, Severity::kError);
  EXPECT_EQ(findings[3].fact, "39.0 GiB are used by other processes");
}

TEST(GpuJudgement, ExpectationsFollowFromTheName) {
  ASSERT_TRUE(expected_rates("NVIDIA H200"));
  EXPECT_GT(expected_rates("NVIDIA H200")->copy_gbs, expected_rates("NVIDIA H100 80GB HBM3")->copy_gbs);
  EXPECT_EQ(expected_rates("NVIDIA H100 PCIe")->bus_gbs, 0);
  EXPECT_FALSE(expected_rates("Some other GPU"));
}

TEST(RankComparison, NamesTheSlowRankAlone) {
  std::vector<RankFindings> ranks;
  for (const double rate : {20.0, 21.0, 4.0, 19.0}) {
    const int rank = static_cast<int>(ranks.size());
    ranks.push_back({rank, rank / 2, "host", {{.check = "GEMM", .figures = {{"gflops", rate}}}}});
  }
  const std::vector<Finding> findings = compare_ranks(ranks, "GEMM", "gflops", 0.5);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].fact, "rank 2 on host reaches 4, the middle rank 20 (gflops)");
  EXPECT_TRUE(compare_ranks(ranks, "GEMM", "tflops", 0.5).empty());
}

TEST(RankComparison, LibrariesDriversAndGpusHaveToBeTheSame) {
  const std::map<std::string, Severity> expected = {{"libraries", Severity::kError},
                                                    {"driver", Severity::kWarning},
                                                    {"GPU", Severity::kWarning},
                                                    {"GPU count", Severity::kWarning}};
  ASSERT_EQ(common_facts().size(), expected.size());
  for (const CommonFact& common : common_facts()) {
    std::vector<RankFindings> ranks = {{0, 0, "a", {{.check = common.check, .fact = "8"}}},
                                       {1, 1, "b", {{.check = common.check, .fact = "8"}}}};
    EXPECT_TRUE(compare_facts(ranks, common).empty());
    ranks[1].findings[0].fact = "7";
    const std::vector<Finding> findings = compare_facts(ranks, common);
    ASSERT_EQ(findings.size(), 1U) << common.check;
    EXPECT_EQ(findings[0].check, common.check);
    EXPECT_EQ(findings[0].severity, expected.at(common.check));
    EXPECT_EQ(findings[0].fact, "rank 1 on b has 7, rank 0 has 8");
    EXPECT_FALSE(findings[0].remedy.empty());
  }
}

TEST(Pairs, EveryPairMeetsOnceAndNobodyHasTwoPeers) {
  for (const int ranks : {2, 3, 4, 7, 8, 16}) {
    std::multiset<std::pair<int, int>> met;
    for (int round = 0; round < ranks - 1 + ranks % 2; ++round) {
      for (int rank = 0; rank < ranks; ++rank) {
        const int peer = peer_in_round(rank, round, ranks);
        if (peer < 0) continue;
        ASSERT_EQ(peer_in_round(peer, round, ranks), rank) << ranks << " ranks, round " << round;
        if (rank < peer) met.emplace(rank, peer);
      }
    }
    EXPECT_EQ(met.size(), static_cast<size_t>(ranks * (ranks - 1) / 2));
    EXPECT_EQ(std::set(met.begin(), met.end()).size(), met.size());
  }
}

TEST(Pairs, TheSlowestPairAndTheRankBehindItAreNamed) {
  const Finding healthy = judge_pairs({{0, 1, 10}, {0, 2, 9}, {1, 2, 8}}, "Gloo");
  EXPECT_EQ(healthy.severity, Severity::kFine);
  EXPECT_EQ(healthy.fact, "3 pair(s), middle 9 GB/s, slowest ranks 1 and 2 with 8");
  const Finding slow = judge_pairs({{0, 1, 10}, {0, 2, 11}, {0, 3, 2}, {1, 2, 12}, {1, 3, 1}, {2, 3, 3}}, "NCCL");
  EXPECT_EQ(slow.severity, Severity::kWarning);
  EXPECT_EQ(slow.fact, "6 pair(s), middle 10 GB/s, slowest ranks 1 and 3 with 1; rank 3 is in all 3 slow pairs");
}

TEST(Clocks, OnlyWhatIsSurelyWrongIsAWarning) {
  EXPECT_EQ(judge_clock(1, 0.2, 0.001).severity, Severity::kFine);
  EXPECT_EQ(judge_clock(1, -3, 0.001).severity, Severity::kWarning);
  EXPECT_EQ(judge_clock(1, 3, 2.5).severity, Severity::kFine);
  EXPECT_EQ(judge_clock(1, -3, 0.5).fact, "node 1 is -3.000 s from node 0, +- 0.500 s");
}

}  // namespace
}  // namespace titanium::doctor
