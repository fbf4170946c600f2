#include "titanium/train/report/metrics_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "titanium/base/text/thousands.h"

namespace titanium::train {

const Colors kColors = {.red = "\033[31m",
                        .green = "\033[32m",
                        .yellow = "\033[33m",
                        .blue = "\033[34m",
                        .magenta = "\033[35m",
                        .cyan = "\033[36m",
                        .orange = "\033[38;2;180;60;0m",
                        .turquoise = "\033[38;2;54;234;195m",
                        .reset = "\033[39m"};
const Colors kNoColors = {};

namespace {

// "1,234.57" for 2 decimals. What no integer holds stays as it is.
std::string grouped(double value, int decimals) {
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (!(value >= 0 && value < 1e18)) return text;
  const size_t point = std::min(text.find('.'), text.size());
  return with_thousands_separators(std::stoll(text.substr(0, point))) + text.substr(point);
}

}  // namespace

// The widths say > because fmt puts "nan" to the left, unlike Python.
std::string step_line(const StepLine& line, const Colors& colors) {
  const std::string mfu = line.mfu ? fmt::format("{:.2f}%", *line.mfu) : "N/A";
  return fmt::format(
      "{}step: {:2}  {}loss: {:>8.5f}  {}grad_norm: {:>7.4f}  {}memory: {:>5.2f}GiB({:.2f}%)  {}tps: {}  {}tflops: {}  "
      "{}mfu: {}{}",
      colors.red, line.step, colors.green, line.loss, colors.orange, line.grad_norm, colors.turquoise, line.memory_gib,
      line.memory_percent, colors.blue, grouped(line.tps, 0), colors.cyan, grouped(line.tflops, 2), colors.magenta, mfu,
      colors.reset);
}

std::string validation_line(const ValidationLine& line, const Colors& colors) {
  return fmt::format("{}validate step: {:2}  {}loss: {:>7.4f}  {}memory: {:>5.2f}GiB({:.2f}%)  {}tps: {}{}",
                     colors.yellow, line.step, colors.green, line.loss, colors.turquoise, line.memory_gib,
                     line.memory_percent, colors.blue, grouped(line.tps, 0), colors.reset);
}

}  // namespace titanium::train
