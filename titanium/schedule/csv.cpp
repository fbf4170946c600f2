#include "titanium/schedule/csv.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/base/text/printable.h"
#include "titanium/schedule/check.h"

namespace titanium::schedule {
namespace {

constexpr std::string_view kPair = "OVERLAP_F_B";
constexpr int kLargestNumber = 1 << 24;

std::string_view trim(std::string_view text) {
  constexpr std::string_view kUnwanted = " \t\r\"";
  const size_t first = text.find_first_not_of(kUnwanted);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kUnwanted) - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t end; (end = text.find(separator)) != std::string_view::npos; text.remove_prefix(end + 1)) {
    parts.push_back(text.substr(0, end));
  }
  parts.push_back(text);
  return parts;
}

std::optional<int> parse_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool valid = error == std::errc() && end == text.data() + text.size() && value >= 0 && value < kLargestNumber;
  return valid ? std::optional(value) : std::nullopt;
}

std::optional<Action> parse_action(std::string_view text) {
  const size_t letter = text.find_first_not_of("0123456789");
  if (letter == std::string_view::npos) return std::nullopt;
  const size_t kind = std::string_view("FIWB").find(text[letter]);
  const auto stage = parse_number(text.substr(0, letter));
  const auto micro_batch = parse_number(text.substr(letter + 1));
  if (kind == std::string_view::npos || !stage || !micro_batch) return std::nullopt;
  return Action{*stage, static_cast<Kind>(kind), *micro_batch};
}

// The one or two actions of a cell; none if it is not valid.
std::vector<Action> parse_cell(std::string_view cell) {
  if (!cell.starts_with('(')) {
    const auto action = parse_action(cell);
    return action ? std::vector{*action} : std::vector<Action>{};
  }
  const size_t close = cell.find(')');
  if (close == std::string_view::npos || cell.substr(close + 1) != kPair) return {};
  std::vector<Action> pair;
  for (const std::string_view part : split(cell.substr(1, close - 1), ';')) {
    if (const auto action = parse_action(trim(part))) pair.push_back(*action);
  }
  if (pair.size() != 2) return {};
  pair[0].overlaps_next = true;
  return pair;
}

[[noreturn]] void refuse_cell(std::string_view source, size_t line, size_t cell, std::string_view text) {
  const bool communication =
      text.find("SEND_") != std::string_view::npos || text.find("RECV_") != std::string_view::npos ||
      text.find("SHARD") != std::string_view::npos || text.find("REDUCE_GRAD") != std::string_view::npos;
  throw UsageError(fmt::format(
      "{}: line {}, cell {}: '{}' is not an action. {}", source, line + 1, cell + 1, printable(text, 40),
      communication
          ? "Communication is inferred: write computations only (PyTorch's format=\"compute_only\")."
          : "Write stage, F, I, W or B, and micro-batch, such as 0F0 or 2B1, or a pair (0F4;3B1)OVERLAP_F_B."));
}

// A stage belongs to the rank that names it first; check_table finds those that name another's.
void infer_layout(Table& table, std::string_view source) {
  std::set<int> named;  // a few bytes may name a huge stage, so stages are counted before they get room
  for (const auto& actions : table.ranks) {
    for (const Action& action : actions) named.insert(action.stage);
  }
  for (int expected = 0; const int stage : named) {
    if (stage == expected++) continue;
    throw UsageError(
        fmt::format("{}: no line has stage {}, but there is a stage {}.", source, expected - 1, *named.rbegin()));
  }
  table.owner.assign(named.size(), -1);
  for (size_t rank = 0; rank < table.ranks.size(); ++rank) {
    for (const Action& action : table.ranks[rank]) {
      if (table.owner[action.stage] < 0) table.owner[action.stage] = static_cast<int>(rank);
      table.micro_batches = std::max(table.micro_batches, action.micro_batch + 1);
    }
  }
}

}  // namespace

Table parse_csv(std::string_view text, std::string_view source) {
  Table table;
  const std::vector<std::string_view> lines = split(text.substr(0, text.find_last_not_of("\r\n") + 1), '\n');
  for (size_t line = 0; line < lines.size(); ++line) {
    std::vector<Action>& list = table.ranks.emplace_back();
    const std::vector<std::string_view> cells = split(lines[line], ',');
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string_view cell = trim(cells[i]);
      if (cell.empty()) continue;
      const std::vector<Action> actions = parse_cell(cell);
      if (actions.empty()) refuse_cell(source, line, i, cell);
      list.insert(list.end(), actions.begin(), actions.end());
    }
  }
  infer_layout(table, source);
  try {
    check_table(table);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", source, error.what()));
  }
  return table;
}

Table read_csv(const std::filesystem::path& path) {
  std::string text;
  try {
    text = read_file(path, "pipeline schedule");
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  return parse_csv(text, path.string());
}

void check_fits(const Table& table, const Schedule& schedule, int ranks, int micro_batches, std::string_view source) {
  const auto require = [&](std::string_view what, size_t found, int wanted) {
    if (found == size_t(wanted)) return;
    throw UsageError(fmt::format("{} is a schedule for {} {}, but the run has {}.", source, found, what, wanted));
  };
  require("ranks", table.ranks.size(), ranks);
  require("micro-batches", table.micro_batches, micro_batches);
  std::vector<int> stages(ranks, 0);
  for (const int owner : table.owner) ++stages[owner];
  for (int rank = 1; rank < ranks; ++rank) {
    if (stages[rank] == stages[0]) continue;
    throw UsageError(fmt::format("{} gives rank 0 {} stages and rank {} {}. Give all the same number.", source,
                                 stages[0], rank, stages[rank]));
  }
  check_stages_per_rank(schedule, stages[0]);
}

std::string to_csv(const Table& table) {
  std::string text;
  for (const std::vector<Action>& list : table.ranks) {
    std::vector<std::string> cells;
    for (size_t i = 0; i < list.size(); ++i) {
      cells.push_back(to_string(list[i]));
      if (!list[i].overlaps_next) continue;
      cells.back() = fmt::format("({};{}){}", cells.back(), to_string(list[i + 1]), kPair);
      ++i;
    }
    text += fmt::format("{}\n", fmt::join(cells, ","));
  }
  return text;
}

}  // namespace titanium::schedule
