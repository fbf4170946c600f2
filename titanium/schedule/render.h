// Pictures of a table: a row per rank, time to the right.
#pragma once

#include <string>

#include "titanium/schedule/table.h"
#include "titanium/schedule/timeline.h"

namespace titanium::schedule {

// A column per unit of time, so costs should be whole numbers. A longer step is drawn out with dashes, idle slots are
// dots, a pair is written as "0F4+3B1".
std::string to_text(const Table& table, const Timeline& timeline);

// The same to scale, for any costs, as a complete SVG document. `title` is written above.
std::string to_svg(const Table& table, const Timeline& timeline, const std::string& title);

}  // namespace titanium::schedule
