#include "titanium/data/loader_state.h"

#include <nlohmann/json.hpp>

#include "titanium/base/error.h"
#include "titanium/base/text/json.h"

namespace titanium::data {

using nlohmann::json;

namespace {

StreamPosition position_of(const json& row) {
  std::vector<int64_t> value;
  for (const json& number : row) value.push_back(integer_of(number));
  TI_CHECK(value.size() == 9 || value.size() == 10, "The saved data position is damaged. Use another checkpoint.");
  return {.epoch = value[1],
          .samples = value[2],
          .record = value[3],
          .token = value[4],
          .entrance = {.record = value[5], .file = value[6], .offset = value[7], .line = value[8]},
          .ended = value.size() == 10 && value[9] != 0};
}

std::map<int64_t, StreamPosition> positions_of(const json& rows) {
  std::map<int64_t, StreamPosition> positions;
  for (const json& row : rows) positions[integer_of(row.at(0))] = position_of(row);
  return positions;
}

// Version 1 had one source; a stream's turn was the number of its samples.
LoaderState read_version_1(const json& object) {
  LoaderState state{.streams = integer_of(object.at("streams")),
                    .seq_len = integer_of(object.at("seq_len")),
                    .turns = {},
                    .sources = {}};
  state.sources.push_back({.name = "",
                           .fingerprint = object.at("fingerprint"),
                           .order = "",
                           .striping = {},
                           .positions = positions_of(object.at("positions"))});
  for (const auto& [stream, at] : state.sources[0].positions) state.turns[stream] = at.samples;
  return state;
}

// Version 2 has no striping: all sources are dealt by records.
Striping striping_of(const json& source) {
  const auto found = source.find("striping");
  if (found == source.end()) return {};
  return {.lanes = integer_of(found->at("lanes")), .block_bytes = integer_of(found->at("block_bytes"))};
}

LoaderState read_versions_2_and_3(const json& object) {
  LoaderState state{.streams = integer_of(object.at("streams")),
                    .seq_len = integer_of(object.at("seq_len")),
                    .turns = {},
                    .sources = {}};
  for (const json& turn : object.at("turns")) state.turns[integer_of(turn.at(0))] = integer_of(turn.at(1));
  for (const json& source : object.at("sources")) {
    state.sources.push_back({.name = source.at("name"),
                             .fingerprint = source.at("fingerprint"),
                             .order = source.at("order"),
                             .striping = striping_of(source),
                             .positions = positions_of(source.at("positions"))});
  }
  return state;
}

}  // namespace

std::string to_json(const LoaderState& state) {
  json turns = json::array();
  for (const auto& [stream, samples] : state.turns) turns.push_back({stream, samples});
  json sources = json::array();
  for (const SourceState& source : state.sources) {
    json positions = json::array();
    for (const auto& [stream, at] : source.positions) {
      const Anchor& entrance = at.entrance;
      positions.push_back({stream, at.epoch, at.samples, at.record, at.token, entrance.record, entrance.file,
                           entrance.offset, entrance.line});
      if (at.ended) positions.back().push_back(1);
    }
    sources.push_back({{"name", source.name},
                       {"fingerprint", source.fingerprint},
                       {"order", source.order},
                       {"positions", std::move(positions)}});
    if (source.striping.by_blocks())
      sources.back()["striping"] = {{"lanes", source.striping.lanes}, {"block_bytes", source.striping.block_bytes}};
  }
  // Programs from before striping read positions of version 2 and refuse others.
  const bool by_blocks = std::ranges::any_of(state.sources, [](const auto& s) { return s.striping.by_blocks(); });
  return json{{"version", by_blocks ? 3 : 2},
              {"streams", state.streams},
              {"seq_len", state.seq_len},
              {"turns", std::move(turns)},
              {"sources", std::move(sources)}}
      .dump();
}

LoaderState loader_state_from_json(const std::string& text) {
  try {
    const json object = parse_json(text);
    const json& version = object.at("version");
    TI_CHECK(version == 1 || version == 2 || version == 3,
             "The saved data position has version {}, but only versions 1 to "
             "3 are known.",
             version.dump());
    return version == 1 ? read_version_1(object) : read_versions_2_and_3(object);
  } catch (const JsonError& error) {
    throw Error(fmt::format("The saved data position {}. Use another checkpoint.", error.what()));
  } catch (const json::exception&) {
    throw Error(
        "The saved data position is damaged: a member is missing or of "
        "another type. Use another checkpoint.");
  }
}

LoaderState merge(const std::vector<LoaderState>& states) {
  TI_CHECK(!states.empty(), "There are no saved data positions to merge.");
  LoaderState merged = states.front();
  for (const LoaderState& state : states) {
    const bool alike = std::ranges::equal(state.sources, merged.sources, [](const auto& a, const auto& b) {
      return std::tie(a.name, a.fingerprint, a.order, a.striping) ==
             std::tie(b.name, b.fingerprint, b.order, b.striping);
    });
    TI_CHECK(state.streams == merged.streams && state.seq_len == merged.seq_len && alike,
             "The saved data positions are of different runs: {} streams of {} "
             "tokens and {} streams of {} tokens, or "
             "of different data. Use the states that were saved together.",
             merged.streams, merged.seq_len, state.streams, state.seq_len);
    merged.turns.insert(state.turns.begin(), state.turns.end());
    for (size_t k = 0; k < state.sources.size(); ++k)
      merged.sources[k].positions.insert(state.sources[k].positions.begin(), state.sources[k].positions.end());
  }
  return merged;
}

}  // namespace titanium::data
