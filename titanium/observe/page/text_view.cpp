#include "titanium/observe/page/text_view.h"

#include <algorithm>
#include <cmath>

#include "titanium/base/text/readable.h"
#include "titanium/base/text/thousands.h"

namespace titanium::observe {
namespace {

constexpr size_t kLabel = 9;  // columns of the numbers at the left

// Dots of 2 x 4 in each character, from U+2800.
class Braille {
 public:
  Braille(size_t columns, size_t rows) : columns_(columns), cells_(columns * rows, 0) {}

  void set(size_t x, size_t y) {
    constexpr uint8_t kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    cells_[y / 4 * columns_ + x / 2] |= kBits[y % 4][x % 2];
  }
  std::string row(size_t row) const {
    std::string text;
    for (size_t column = 0; column < columns_; ++column) {
      const uint8_t dots = cells_[row * columns_ + column];
      text += {static_cast<char>(0xe2), static_cast<char>(0xa0 | dots >> 6), static_cast<char>(0x80 | (dots & 0x3f))};
    }
    return text;
  }

 private:
  size_t columns_;
  std::vector<uint8_t> cells_;
};

struct Bounds {
  double low = INFINITY, high = -INFINITY;

  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

// Columns between two with points get the straight line from one to the other.
void fill_gaps(std::vector<Bounds>& columns) {
  std::optional<size_t> last;
  for (size_t x = 0; x < columns.size(); ++x) {
    if (columns[x].low > columns[x].high) continue;  // no points
    for (size_t between = last.value_or(x) + 1; between < x; ++between) {
      const double share = static_cast<double>(between - *last) / static_cast<double>(x - *last);
      columns[between].add(std::lerp(columns[*last].low, columns[x].high, share));
    }
    last = x;
  }
}

// The curve as vertical strokes, each joined to the one before.
void draw(Braille& picture, const std::vector<Bounds>& columns, const Bounds& all, size_t dots) {
  const auto row = [&](double value) {
    // Halves, because the difference of two large numbers may be none.
    const double share = all.high > all.low ? (all.high / 2 - value / 2) / (all.high / 2 - all.low / 2) : 0.5;
    return static_cast<size_t>(std::lround(share * static_cast<double>(dots - 1)));
  };
  std::optional<double> last;
  for (size_t x = 0; x < columns.size(); ++x) {
    Bounds stroke = columns[x];
    if (stroke.low > stroke.high) continue;  // no points
    const double end = stroke.low;
    if (last) stroke.add(*last);
    for (size_t y = row(stroke.high); y <= row(stroke.low); ++y) picture.set(x, y);
    last = end;
  }
}

}  // namespace

std::string status_line(const RunSummary& summary, size_t width) {
  const auto number = [](double value) { return with_thousands_separators(std::llround(value)); };
  std::vector<std::string> parts = {to_string(summary.state)};  // the most important first
  std::string step = "step " + number(summary.step);
  if (summary.total_steps > 0) {
    step += fmt::format("/{} {:.0f}%", number(summary.total_steps), 100 * summary.step / summary.total_steps);
  }
  parts.push_back(step);
  if (summary.loss) parts.push_back(fmt::format("loss {:.4f}", *summary.loss));
  if (summary.seconds_left) parts.push_back("left " + readable_duration(*summary.seconds_left));
  if (summary.tps) parts.push_back(readable_count(*summary.tps) + " tok/s");
  if (summary.mfu) parts.push_back(fmt::format("mfu {:.1f}%", *summary.mfu));
  if (summary.memory_gib) parts.push_back(fmt::format("{:.1f} GiB", *summary.memory_gib));
  if (summary.goodput) parts.push_back(fmt::format("goodput {:.1f}%", 100 * *summary.goodput));
  std::string line;
  for (const std::string& part : parts) {
    const std::string_view gap = line.empty() ? "" : "  ";
    if (line.size() + gap.size() + part.size() > width) break;
    line.append(gap).append(part);
  }
  return line;
}

std::string loss_plot(const RunData& run, size_t width, size_t height) {
  const std::vector<double>* losses = run.columns.find("loss");
  if (losses == nullptr || width <= kLabel + 2 || height < 3) return "";
  const std::vector<double>& steps = run.columns.steps;
  const size_t columns = width - kLabel - 1, rows = height - 1;
  std::vector<Bounds> dots(2 * columns);
  Bounds all;
  const double span = std::max(1.0, steps.back() - steps.front());
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!std::isfinite((*losses)[i])) continue;
    const double share = (steps[i] - steps.front()) / span;
    dots[static_cast<size_t>(share * static_cast<double>(dots.size() - 1))].add((*losses)[i]);
    all.add((*losses)[i]);
  }
  if (all.low > all.high) return "";
  fill_gaps(dots);
  Braille picture(columns, rows);
  draw(picture, dots, all, 4 * rows);
  std::string text;
  for (size_t row = 0; row < rows; ++row) {
    const double value = std::lerp(all.high, all.low, static_cast<double>(row) / static_cast<double>(rows - 1));
    const bool labelled = row % 4 == 0 || row == rows - 1;
    text += fmt::format("{:>{}} {}\n", labelled ? fmt::format("{:.4g}", value) : "", kLabel, picture.row(row));
  }
  const std::string first = with_thousands_separators(std::llround(steps.front()));
  const std::string last = with_thousands_separators(std::llround(steps.back()));
  return text + fmt::format("{:>{}} {}{:>{}}\n", "step", kLabel, first, last, columns - first.size());
}

}  // namespace titanium::observe
