#include "titanium/doctor/finding.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "titanium/base/error.h"

namespace titanium::doctor {
namespace {

Report two_ranks() {
  const Finding fine{.check = "GEMM", .fact = "20 GFLOP/s", .figures = {{"gflops", 20}}};
  const Finding low{.check = "open files", .severity = Severity::kError, .fact = "limit 64", .remedy = "Raise it."};
  const Finding shm{
      .check = "shared memory", .severity = Severity::kWarning, .fact = "1 MiB", .remedy = "Mount more of it."};
  return {"2 ranks", {{0, 0, "alpha", {fine, low}}, {1, 1, "beta", {fine, low, shm}}}};
}

TEST(Finding, TravelsAsJson) {
  const RankFindings sent = two_ranks().ranks[1];
  const RankFindings received = from_json_text(to_json_text(sent));
  EXPECT_EQ(received.host, "beta");
  ASSERT_EQ(received.findings.size(), 3U);
  EXPECT_EQ(received.findings[2].severity, Severity::kWarning);
  EXPECT_EQ(received.findings[2].remedy, "Mount more of it.");
  EXPECT_EQ(received.findings[0].figures, (std::map<std::string, double>{{"gflops", 20}}));
  EXPECT_THROW(from_json_text(R"({"rank": 0})"), Error);
}

TEST(Finding, PageShowsOnceWhatRanksHaveInCommon) {
  EXPECT_EQ(page_of(two_ranks()),
            "titanium doctor: 2 ranks\n"
            "      ok  GEMM               20 GFLOP/s\n"
            "   ERROR  open files         limit 64\n"
            "                             -> Raise it.\n"
            " WARNING  shared memory      1 MiB (rank 1 on beta)\n"
            "                             -> Mount more of it.\n"
            "1 error, 1 warning.\n");
}

TEST(Finding, JsonHasEveryRank) {
  const nlohmann::json value = nlohmann::json::parse(json_of(two_ranks()));
  EXPECT_EQ(value["errors"], 1);
  EXPECT_EQ(value["warnings"], 1);
  EXPECT_EQ(value["ranks"].size(), 2U);
  EXPECT_EQ(value["ranks"][1]["findings"][0]["figures"]["gflops"], 20);
}

}  // namespace
}  // namespace titanium::doctor
