// What a check has found: one sentence, how bad it is, and what to do about it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace titanium::doctor {

enum class Severity {
  kFine,
  kWarning,  // the run is slower or more at risk than it needs to be
  kError,    // the run would fail, or not be what was asked for
};

struct Finding {
  std::string check;  // "shared memory"
  Severity severity = Severity::kFine;
  std::string fact;                            // what was found: "/dev/shm has 64 MiB"
  std::string remedy = {};                     // a sentence; empty when fine
  std::map<std::string, double> figures = {};  // what was measured, by name and unit: "copy_gbs"
};

// Everything that one rank has found.
struct RankFindings {
  int rank = 0;
  int node = 0;
  std::string host = {};
  std::vector<Finding> findings = {};
};

// The same as JSON, to travel between ranks. from_json_text throws Error for a text that to_json_text has not written.
std::string to_json_text(const RankFindings& findings);
RankFindings from_json_text(std::string_view text);

// The findings of all ranks.
struct Report {
  std::string title;  // "4 ranks on 2 nodes, CPU"
  std::vector<RankFindings> ranks;

  int count(Severity severity) const;  // what several ranks have found alike counts once
};

// One page for people: a line for each check, or several where ranks differ; a remedy under each that is not fine.
std::string page_of(const Report& report);
// The same for programs: {"title", "errors", "warnings", "ranks": [{"rank", "node", "host", "findings": [...]}]}.
std::string json_of(const Report& report);

}  // namespace titanium::doctor
