// A run, or several over each other, as one self-contained HTML page: Note [Page].
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "titanium/observe/run/run_folder.h"

namespace titanium::observe {

// Note [Page]
// The page is page.html with page.css, plot.js and page.js from this folder and the data as JSON inside. It loads
// nothing: a policy in its head forbids that. What comes from a run stands in the JSON alone, and the script puts it
// into text nodes, so that no name or message of a run can become markup. A live page asks its own server for the data
// instead.

struct PageOptions {
  size_t points = 8000;                      // of each curve, at most
  double from = -1e300, to = 1e300;          // steps of the curves
  std::optional<double> now = std::nullopt;  // unix time; none: the clock's
  size_t image_bytes = size_t{16} << 20;     // of pictures in all runs, at most; 0: their captions alone
};

// What the page shows, as JSON that may stand inside of a script element.
std::string page_data(const std::vector<std::unique_ptr<RunFolder>>& runs, const PageOptions& options = {});

// The pictures of runs alone: a list for each run, as page_data has it.
std::string image_data(const std::vector<std::unique_ptr<RunFolder>>& runs, const PageOptions& options = {});

// The page with its data inside; with empty `data`, one that asks its server for data.json every few seconds, and for
// images.json when the run has drawn more.
std::string make_page(const std::string& data);

}  // namespace titanium::observe
