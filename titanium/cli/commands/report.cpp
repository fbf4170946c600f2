// titanium report: writes a page with the plots of runs.
#include <cstdio>

#include "titanium/base/files/file.h"
#include "titanium/cli/command_line.h"
#include "titanium/observe/page/page.h"

namespace titanium::cli {

int run_report(Arguments args) {
  std::vector<std::string> folders;
  std::string out = "report.html";
  observe::PageOptions options;
  CommandLine app(
      "Writes one self-contained HTML file with the plots, the status and the configuration of a run, or of several\n"
      "over each other. It reads metrics.jsonl and run.jsonl, and can be made while the run goes on.",
      "report");
  app.option("RUN_FOLDER", folders, "job.dump_folder of a run; several are drawn over each other").required();
  app.option("--out", out, "The file to write").shows_default();
  app.option("--points", options.points, "Points of each curve; of more, the least and the greatest are kept")
      .between(100, 10'000'000)
      .shows_default();
  if (!app.parse(args)) return 0;
  std::vector<std::unique_ptr<observe::RunFolder>> runs;
  for (const std::string& folder : folders) runs.push_back(std::make_unique<observe::RunFolder>(folder));
  const std::string page = observe::make_page(observe::page_data(runs, options));
  write_file_atomically(out, page);
  fmt::print("{}: {} run{}, {:.1f} MB\n", out, runs.size(), runs.size() == 1 ? "" : "s",
             static_cast<double>(page.size()) / 1e6);
  return 0;
}

}  // namespace titanium::cli
