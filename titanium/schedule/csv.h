// Tables as CSV, in PyTorch's compute-only format: a line per rank, a cell per action ("0F0", "1B3", "2I1", "2W1"),
// empty cells for idle slots, and "(0F4;3B1)OVERLAP_F_B" for a pair.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "titanium/schedule/schedules.h"
#include "titanium/schedule/table.h"

namespace titanium::schedule {

// Stages, micro-batches and the owner of each stage follow from the cells. Throws UsageError for a cell that is not an
// action, with `source`, line and cell (both from 1), or for a table that check_table refuses, with `source`.
Table parse_csv(std::string_view text, std::string_view source);

// parse_csv of a file. Throws UsageError also if it cannot be read.
Table read_csv(const std::filesystem::path& path);

// Throws UsageError unless the table is one for `schedule` with this many ranks and micro-batches.
void check_fits(const Table& table, const Schedule& schedule, int ranks, int micro_batches, std::string_view source);

std::string to_csv(const Table& table);

}  // namespace titanium::schedule
