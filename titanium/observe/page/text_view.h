// A run on a terminal.
#pragma once

#include <string>

#include "titanium/observe/run/run_folder.h"
#include "titanium/observe/run/run_summary.h"

namespace titanium::observe {

// One line of at most `width` columns: step, loss, rate, time left and state, without what has no room.
std::string status_line(const RunSummary& summary, size_t width = 80);

// The loss over the steps in `height` rows of `width` columns, drawn with braille characters: 2 x 4 dots each, with the
// least and the greatest loss of each column of dots. Lines end with newlines. Empty without a loss.
std::string loss_plot(const RunData& run, size_t width = 80, size_t height = 14);

}  // namespace titanium::observe
