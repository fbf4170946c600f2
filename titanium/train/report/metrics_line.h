// The lines that a run shows: torchtitan's, column by column.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace titanium::train {

// Escape sequences of a terminal, or nothing.
struct Colors {
  std::string_view red;
  std::string_view green;
  std::string_view yellow;
  std::string_view blue;
  std::string_view magenta;
  std::string_view cyan;
  std::string_view orange;
  std::string_view turquoise;
  std::string_view reset;
};
extern const Colors kColors;
extern const Colors kNoColors;

struct StepLine {
  int64_t step = 0;
  double loss = 0;
  double grad_norm = 0;
  double memory_gib = 0;
  double memory_percent = 0;
  double tps = 0;
  double tflops = 0;
  std::optional<double> mfu = std::nullopt;  // percent; none where the device's peak is unknown, shown as N/A
};
std::string step_line(const StepLine& line, const Colors& colors);

struct ValidationLine {
  int64_t step = 0;
  double loss = 0;
  double memory_gib = 0;
  double memory_percent = 0;
  double tps = 0;
};
std::string validation_line(const ValidationLine& line, const Colors& colors);

}  // namespace titanium::train
