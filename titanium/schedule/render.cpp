#include "titanium/schedule/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace titanium::schedule {
namespace {

std::string label(const Table& table, size_t rank, const Step& step) {
  const std::string first = to_string(table.ranks[rank][step.first]);
  return step.count == 1 ? first : first + "+" + to_string(table.ranks[rank][step.first + 1]);
}

// Characters per unit of time, so that every label fits with a blank after it.
int column_width(const Table& table, const Timeline& timeline) {
  double width = 2;
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    for (const Step& step : timeline.ranks[rank]) {
      width = std::max(width, static_cast<double>(label(table, rank, step).size() + 1) / (step.end - step.start));
    }
  }
  return static_cast<int>(std::ceil(width));
}

std::string escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&')
      escaped += "&amp;";
    else if (c == '<')
      escaped += "&lt;";
    else
      escaped += c;
  }
  return escaped;
}

struct Look {
  const char* name;
  const char* colour;
};
constexpr std::array<Look, 5> kLooks = {{{"F forward", "#9ec5f8"},
                                         {"I gradient of the input", "#8fd3c4"},
                                         {"W gradients of the weights", "#b9dd8c"},
                                         {"B whole backward", "#f8c27c"},
                                         {"F+B overlapped", "#cdb4ee"}}};

size_t look_of(const Table& table, size_t rank, const Step& step) {
  return step.count == 2 ? 4 : static_cast<size_t>(table.ranks[rank][step.first].kind);
}

constexpr double kUnit = 34, kRow = 26, kLeft = 64, kTop = 40, kLegend = 160;

std::string box(double x, double y, double width, const char* colour, const std::string& text) {
  return fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\" stroke=\"#444\" "
      "stroke-width=\"0.6\"/>"
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
      x, y, width, kRow - 4, colour, x + width / 2, y + kRow / 2 + 2, escape(text));
}

}  // namespace

std::string to_text(const Table& table, const Timeline& timeline) {
  const int width = column_width(table, timeline);
  const auto columns = [&](double time) { return static_cast<size_t>(std::lround(time * width)); };
  const size_t digits = std::to_string(timeline.ranks.size() - 1).size();
  std::string text;
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    std::string row;
    const auto wait_until = [&](double time) {
      while (row.size() < columns(time)) row += fmt::format("{:<{}}", '.', width);
      row.resize(columns(time), ' ');
    };
    for (const Step& step : timeline.ranks[rank]) {
      wait_until(step.start);
      row += label(table, rank, step);
      row.resize(columns(step.end) - 1, '-');
      row += ' ';
    }
    wait_until(timeline.makespan);
    row.erase(row.find_last_not_of(' ') + 1);
    text += fmt::format("rank {:<{}}  {}\n", rank, digits, row);
  }
  return text;
}

std::string to_svg(const Table& table, const Timeline& timeline, const std::string& title) {
  const double legend_y = kTop + kRow * static_cast<double>(timeline.ranks.size()) + 12;
  std::string body = fmt::format("<text x=\"8\" y=\"22\" font-size=\"14\">{}</text>\n", escape(title));
  std::array<bool, kLooks.size()> used = {};
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const double y = kTop + kRow * static_cast<double>(rank);
    body += fmt::format("<text x=\"8\" y=\"{:.1f}\">rank {}</text>\n", y + kRow / 2 + 2, rank);
    for (const Step& step : timeline.ranks[rank]) {
      const size_t look = look_of(table, rank, step);
      used[look] = true;
      body += box(kLeft + kUnit * step.start, y, kUnit * (step.end - step.start), kLooks[look].colour,
                  label(table, rank, step));
    }
  }
  double x = kLeft;
  for (size_t look = 0; look < kLooks.size(); ++look) {
    if (!used[look]) continue;
    body += box(x, legend_y, kLegend, kLooks[look].colour, kLooks[look].name);
    x += kLegend + 8;
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" font-family=\"sans-serif\" "
      "font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}</svg>\n",
      std::max(kLeft + kUnit * timeline.makespan + 8, x), legend_y + kRow + 8, body);
}

}  // namespace titanium::schedule
