#include "titanium/train/report/metrics_line.h"

#include "titanium/base/log.h"
#include "titanium/train/report/peak_flops.h"

namespace titanium::train {
namespace {

const StepLine kLine = {.step = 3,
                        .loss = 6.123456,
                        .grad_norm = 1.23456,
                        .memory_gib = 2.5,
                        .memory_percent = 1.789,
                        .tps = 12345.6,
                        .tflops = 1234.567,
                        .mfu = 41.239};

TEST(MetricsLine, StepHasTorchtitansColumns) {
  EXPECT_EQ(step_line(kLine, kNoColors),
            "step:  3  loss:  6.12346  grad_norm:  1.2346  memory:  2.50GiB(1.79%)  tps: 12,346  tflops: 1,234.57  "
            "mfu: 41.24%");
}

TEST(MetricsLine, StepHasTorchtitansColours) {
  EXPECT_EQ(step_line(kLine, kColors),
            "\033[31mstep:  3  \033[32mloss:  6.12346  \033[38;2;180;60;0mgrad_norm:  1.2346  "
            "\033[38;2;54;234;195mmemory:  2.50GiB(1.79%)  \033[34mtps: 12,346  \033[36mtflops: 1,234.57  "
            "\033[35mmfu: 41.24%\033[39m");
}

TEST(MetricsLine, UnknownPeakKeepsTheMfuColumn) {
  StepLine line = kLine;
  line.mfu.reset();
  EXPECT_TRUE(step_line(line, kNoColors).ends_with("  mfu: N/A"));
}

TEST(MetricsLine, LossThatIsNotANumberIsShown) {
  StepLine line = kLine;
  line.loss = std::nan("");
  line.tps = INFINITY;
  EXPECT_NE(step_line(line, kNoColors).find("loss:      nan"), std::string::npos);
  EXPECT_NE(step_line(line, kNoColors).find("tps: inf"), std::string::npos);
}

TEST(MetricsLine, ValidationHasTorchtitansColumnsAndColours) {
  const ValidationLine line = {.step = 100, .loss = 5.43219, .memory_gib = 12.3, .memory_percent = 8.8, .tps = 999.5};
  EXPECT_EQ(validation_line(line, kNoColors), "validate step: 100  loss:  5.4322  memory: 12.30GiB(8.80%)  tps: 1,000");
  EXPECT_EQ(validation_line(line, kColors),
            "\033[33mvalidate step: 100  \033[32mloss:  5.4322  \033[38;2;54;234;195mmemory: 12.30GiB(8.80%)  "
            "\033[34mtps: 1,000\033[39m");
}

TEST(MetricsLine, RatesHaveThousandsSeparators) {
  StepLine line = kLine;
  const auto rates = [&](double tps, double tflops) {
    line.tps = tps;
    line.tflops = tflops;
    const std::string text = step_line(line, kNoColors);
    return text.substr(text.find("tps"), text.find("  mfu") - text.find("tps"));
  };
  EXPECT_EQ(rates(0, 0), "tps: 0  tflops: 0.00");
  EXPECT_EQ(rates(999.4, 999.999), "tps: 999  tflops: 1,000.00");
  EXPECT_EQ(rates(1'234'567.5, 1'234'567.891), "tps: 1,234,568  tflops: 1,234,567.89");
}

TEST(PeakFlops, AreFoundByTheNamesThatDriversReport) {
  EXPECT_EQ(peak_flops("NVIDIA A100-SXM4-80GB"), 312e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 80GB HBM3"), 989e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 PCIe"), 756e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 NVL"), 835e12);
  EXPECT_EQ(peak_flops("NVIDIA H200"), 989e12);
  EXPECT_EQ(peak_flops("NVIDIA H20"), 148e12);
  EXPECT_EQ(peak_flops("NVIDIA B200"), 2.25e15);
  EXPECT_EQ(peak_flops("NVIDIA GB200"), 2.5e15);
  EXPECT_EQ(peak_flops("NVIDIA L40S"), 362e12);
  EXPECT_EQ(peak_flops("AMD Instinct MI300X"), 1.3e15);
}

TEST(PeakFlops, UnknownGpuIsTakenForAnA100WithAWarning) {
  ::testing::internal::CaptureStdout();
  log_to_stdout(LogLevel::kWarning);
  EXPECT_EQ(peak_flops("NVIDIA GeForce GTX 1080"), 312e12);
  const std::string log = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(log.find("Peak flops undefined for: NVIDIA GeForce GTX 1080, fallback to A100"), std::string::npos);
}

}  // namespace
}  // namespace titanium::train
