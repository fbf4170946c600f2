// What runs leave: dumps of flight recorders, metrics and events.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/fuzz/inputs.h"
#include "titanium/checkpoint/torch_file/pickle_writer.h"

namespace titanium::fuzz {
namespace {

using checkpoint::PickleValue;

PickleValue flight_entry(Choices& choices, const std::string& group, int64_t number) {
  const bool message = choices.one_in(5);
  const PickleValue sizes =
      PickleValue::list({PickleValue::list({PickleValue(static_cast<int64_t>(choices.below(3)))})});
  std::vector<std::pair<PickleValue, PickleValue>> members = {
      {"record_id", static_cast<int64_t>(choices.below(2))},
      {"process_group", PickleValue::tuple({PickleValue(group), PickleValue(choices.text(3))})},
      {"collective_seq_id", choices.one_in(50) ? choices.number() : number},
      {"profiling_name", message
                             ? choices.pick<std::string>({"nccl:send 0->1", "nccl:recv 1<-0", "send 9->", "recv"})
                             : choices.pick<std::string>({"nccl:_all_gather_base", "all_reduce", "nccl:coalesced"})},
      {"time_created_ns", choices.one_in(50) ? choices.number() : number},
      {"input_sizes", sizes},
      {"input_dtypes", PickleValue::list({PickleValue("Float")})},
      {"output_sizes", sizes},
      {"state", choices.pick<std::string>({"completed", "completed", "started", "scheduled"})},
      {"is_p2p", message}};
  if (choices.one_in(2)) members.emplace_back("step", choices.number());
  if (choices.one_in(100)) members.erase(members.begin() + static_cast<int64_t>(choices.below(members.size())));
  return PickleValue::dict(members);
}

// A number that a run may have logged, or one that goes too far.
std::string logged(Choices& choices) {
  return choices.pick<std::string>({"1", "0.5", "3e4", "-1", "null", "1e308", "-1e308", "1e18", "1e19", "1e-320",
                                    "\"text\"", "NaN", "true", "9223372036854775807", "[]", "{}"});
}

}  // namespace

Input make_flights(Choices& choices) {
  const auto ranks = static_cast<int>(1 + choices.below(4));
  std::vector<std::string> groups;
  std::vector<std::pair<PickleValue, PickleValue>> config;
  for (size_t i = 0, count = 1 + choices.some(50); i < count; ++i) {
    std::vector<int> members;
    for (size_t size = 1 + choices.some(3'000); size > 0; --size)
      members.push_back(static_cast<int>(choices.below(4'000)));
    groups.push_back(choices.one_in(9) ? choices.text(3) : fmt::format("g{}", i));
    const std::string text = choices.one_in(20) ? choices.text(20) : fmt::format("[{}]", fmt::join(members, ", "));
    config.emplace_back(groups.back(), PickleValue::dict({{"ranks", text}}));
  }
  Input input;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<PickleValue> entries;
    for (size_t i = 0, count = choices.some(2'000); i < count; ++i) {
      entries.push_back(flight_entry(choices, choices.pick(groups), static_cast<int64_t>(i)));
    }
    input.push_back({fmt::format("rank_{}", rank), checkpoint::write_pickle(PickleValue::dict(
                                                       {{"pg_config", PickleValue::dict(config)},
                                                        {"entries", PickleValue::list(std::move(entries))}}))});
  }
  return input;
}

Input make_run(Choices& choices) {
  std::string metrics, events;
  const size_t wide = choices.one_in(4) ? choices.some(5'000) : 0;
  for (size_t i = 0, count = choices.some(20'000); i < count; ++i) {
    std::string line = fmt::format(R"({{"step":{})", choices.one_in(20) ? logged(choices) : std::to_string(i));
    for (const char* name : {"loss", "tps", "time_s", "unix_s", "tokens", "memory_gib"}) {
      if (choices.one_in(3)) line += fmt::format(R"(,"{}":{})", name, logged(choices));
    }
    if (choices.one_in(9)) line += fmt::format(R"(,{}:{})", quoted(choices.text(4)), make_json_value(choices, 3));
    if (choices.one_in(9)) line += fmt::format(R"(,"experts":[{{"layer":{},"dead":1}}])", logged(choices));
    if (i == 0) {
      for (size_t column = 0; column < wide; ++column) line += fmt::format(R"(,"c{}":1)", column);
    }
    metrics += line + "}\n";
  }
  for (size_t count = choices.some(20'000); count > 0; --count) {
    std::string line = fmt::format(
        R"({{"event":"{}")", choices.pick<std::string>({"start", "start", "validation", "checkpoint", "error", "end"}));
    for (const char* name :
         {"step", "unix_s", "loss", "rank", "total_steps", "log_freq", "message", "how", "seconds"}) {
      if (choices.one_in(2)) line += fmt::format(R"(,"{}":{})", name, logged(choices));
    }
    if (choices.one_in(5)) line += R"(,"pipeline":)" + make_json_value(choices, 4);
    events += line + "}\n";
  }
  return {{"metrics.jsonl", metrics}, {"run.jsonl", events}};
}

}  // namespace titanium::fuzz
