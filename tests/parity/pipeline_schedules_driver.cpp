// Answers commands on stdin with one JSON object per line, for pipeline_schedules.py.
//
//   table <schedule> <ranks> <stages per rank> <micro-batches>   our table as CSV, our programs as CSV, and its
//   measures csv <file>                                                   the same for a CSV file split <stages>
//   <layers> <input weight> <output weight>       modules of each stage
//
// What is refused becomes {"error": sentence}.
#include <fmt/ranges.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "titanium/base/error.h"
#include "titanium/schedule/check.h"
#include "titanium/schedule/csv.h"
#include "titanium/schedule/program.h"
#include "titanium/schedule/schedules.h"
#include "titanium/schedule/stage_split.h"
#include "titanium/schedule/timeline.h"

using namespace titanium::schedule;
using nlohmann::json;

json describe(const Table& table) {
  check_table(table);
  std::string programs;
  for (const Program& program : make_programs(table)) {
    std::vector<std::string> cells;
    for (const Instruction& instruction : program) cells.push_back(to_string(instruction));
    programs += fmt::format("{}\n", fmt::join(cells, ","));
  }
  const Timeline timeline = simulate(table);
  return {{"csv", to_csv(table)},
          {"programs", programs},
          {"makespan", timeline.makespan},
          {"bubble", timeline.bubble},
          {"peaks", peak_live_activations(table)}};
}

json answer(std::istringstream& words) {
  std::string command, name;
  words >> command;
  if (command == "csv") {
    words >> name;
    return describe(read_csv(name));
  }
  if (command == "split") {
    int64_t stages = 0, layers = 0, input = 0, output = 0;
    words >> stages >> layers >> input >> output;
    ModelChildren children{.before = {"tok_embeddings"}, .blocks = {}, .after = {"norm", "output"}};
    for (int64_t i = 0; i < layers; ++i) children.blocks.push_back(fmt::format("layers.{}", i));
    return split_evenly(stages, children, input, output);
  }
  Shape shape;
  words >> name >> shape.ranks >> shape.stages_per_rank >> shape.micro_batches;
  return describe(build_table(find_schedule(name), shape));
}

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    json result;
    try {
      result = answer(words);
    } catch (const titanium::UsageError& error) {
      result = {{"error", error.what()}};
    }
    std::cout << result.dump() << std::endl;
  }
  return 0;
}
