#include "titanium/doctor/finding.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "titanium/base/error.h"
#include "titanium/base/text/json.h"

namespace titanium::doctor {
namespace {

constexpr std::string_view kNames[] = {"fine", "warning", "error"};
constexpr std::string_view kMarks[] = {"ok", "WARNING", "ERROR"};

std::string_view name_of(Severity severity) { return kNames[static_cast<size_t>(severity)]; }

Severity severity_of(const std::string& name) {
  const auto* const found = std::ranges::find(kNames, name);
  TI_CHECK(found != std::end(kNames), "a finding of severity '{}' is none of doctor's.", name);
  return static_cast<Severity>(found - kNames);
}

nlohmann::ordered_json as_json(const RankFindings& rank) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : rank.findings) {
    list.push_back({{"check", finding.check},
                    {"severity", name_of(finding.severity)},
                    {"fact", finding.fact},
                    {"remedy", finding.remedy},
                    {"figures", finding.figures}});
  }
  return {{"rank", rank.rank}, {"node", rank.node}, {"host", rank.host}, {"findings", std::move(list)}};
}

// The ranks that have found the same. Of what is fine, one line per check is enough: the first rank's.
struct Line {
  Finding finding;
  std::vector<const RankFindings*> ranks;
};

std::vector<Line> lines_of(const Report& report) {
  std::vector<Line> lines;
  for (const RankFindings& rank : report.ranks) {
    for (const Finding& finding : rank.findings) {
      const auto same = std::ranges::find_if(lines, [&](const Line& line) {
        const Finding& other = line.finding;
        if (other.check != finding.check || other.severity != finding.severity) return false;
        return finding.severity == Severity::kFine ||
               std::tie(other.fact, other.remedy) == std::tie(finding.fact, finding.remedy);
      });
      if (same == lines.end()) {
        lines.push_back({finding, {&rank}});
      } else if (same->ranks.back() != &rank) {
        same->ranks.push_back(&rank);
      }
    }
  }
  std::map<std::string, size_t> places;  // lines of one check stand together, where the first of them was found
  for (const Line& line : lines) places.emplace(line.finding.check, places.size());
  std::ranges::stable_sort(lines, {}, [&](const Line& line) { return places.at(line.finding.check); });
  return lines;
}

// " (rank 3 on gpu07)", " (ranks 2, 3)"; nothing where all ranks agree.
std::string place_of(const Line& line, size_t ranks) {
  if (line.ranks.size() == ranks) return "";
  if (line.ranks.size() == 1) return fmt::format(" (rank {} on {})", line.ranks[0]->rank, line.ranks[0]->host);
  if (line.finding.severity == Severity::kFine) return "";
  std::vector<int> list;
  for (const RankFindings* rank : line.ranks) list.push_back(rank->rank);
  return fmt::format(" (ranks {})", fmt::join(list, ", "));
}

std::string plural(int count, std::string_view word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

}  // namespace

std::string to_json_text(const RankFindings& findings) { return as_json(findings).dump(); }

RankFindings from_json_text(std::string_view text) {
  try {
    const nlohmann::json value = parse_json(text);
    RankFindings rank{value.at("rank"), value.at("node"), value.at("host"), {}};
    for (const nlohmann::json& item : value.at("findings")) {
      rank.findings.push_back({item.at("check"), severity_of(item.at("severity")), item.at("fact"), item.at("remedy"),
                               item.at("figures").get<std::map<std::string, double>>()});
    }
    return rank;
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("findings that are not doctor's: {}.", error.what()));
  }
}

int Report::count(Severity severity) const {
  const std::vector<Line> lines = lines_of(*this);
  return static_cast<int>(std::ranges::count(lines, severity, [](const Line& line) { return line.finding.severity; }));
}

std::string page_of(const Report& report) {
  std::string page = fmt::format("titanium doctor: {}\n", report.title);
  for (const Line& line : lines_of(report)) {
    page += fmt::format("{:>8}  {:<18} {}{}\n", kMarks[static_cast<size_t>(line.finding.severity)], line.finding.check,
                        line.finding.fact, place_of(line, report.ranks.size()));
    if (!line.finding.remedy.empty()) page += fmt::format("{:>8}  {:<18} -> {}\n", "", "", line.finding.remedy);
  }
  const int errors = report.count(Severity::kError), warnings = report.count(Severity::kWarning);
  return page + (errors + warnings == 0
                     ? "Nothing is wrong.\n"
                     : fmt::format("{}, {}.\n", plural(errors, "error"), plural(warnings, "warning")));
}

std::string json_of(const Report& report) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const RankFindings& rank : report.ranks) ranks.push_back(as_json(rank));
  const nlohmann::ordered_json value = {{"title", report.title},
                                        {"errors", report.count(Severity::kError)},
                                        {"warnings", report.count(Severity::kWarning)},
                                        {"ranks", std::move(ranks)}};
  return value.dump(2) + "\n";
}

}  // namespace titanium::doctor
