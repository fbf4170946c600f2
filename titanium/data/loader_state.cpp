#include "titanium/data/loader_state.h"

#include <nlohmann/json.hpp>

#include "titanium/base/error.h"
#include "titanium/base/json.h"

namespace titanium::data {

using nlohmann::json;

std::string to_json(const LoaderState& state) {
  json positions = json::array();
  for (const auto& [stream, at] : state.positions) {
    const Anchor& entrance = at.entrance;
    positions.push_back({stream, at.epoch, at.samples, at.record, at.token, entrance.record, entrance.file,
                         entrance.offset, entrance.line});
  }
  return json{{"version", 1},
              {"streams", state.streams},
              {"seq_len", state.seq_len},
              {"fingerprint", state.fingerprint},
              {"positions", std::move(positions)}}
      .dump();
}

LoaderState loader_state_from_json(const std::string& text) {
  try {
    const json object = parse_json(text);
    TI_CHECK(object.at("version") == 1, "The saved data position has version {}, but only version 1 is known.",
             object.at("version").dump());
    LoaderState state{.streams = object.at("streams"),
                      .seq_len = object.at("seq_len"),
                      .fingerprint = object.at("fingerprint"),
                      .positions = {}};
    for (const json& row : object.at("positions")) {
      const auto value = row.get<std::array<int64_t, 9>>();
      state.positions[value[0]] = {
          .epoch = value[1],
          .samples = value[2],
          .record = value[3],
          .token = value[4],
          .entrance = {.record = value[5], .file = value[6], .offset = value[7], .line = value[8]}};
    }
    return state;
  } catch (const JsonError& error) {
    throw Error(fmt::format("The saved data position {}. Use another checkpoint.", error.what()));
  } catch (const json::exception&) {
    throw Error("The saved data position is damaged: a member is missing or of another type. Use another checkpoint.");
  }
}

LoaderState merge(const std::vector<LoaderState>& states) {
  TI_CHECK(!states.empty(), "There are no saved data positions to merge.");
  LoaderState merged = states.front();
  for (const LoaderState& state : states) {
    TI_CHECK(
        state.streams == merged.streams && state.seq_len == merged.seq_len && state.fingerprint == merged.fingerprint,
        "The saved data positions are of different runs: {} streams of {} tokens and {} streams of {} tokens, or "
        "of different data. Use the states that were saved together.",
        merged.streams, merged.seq_len, state.streams, state.seq_len);
    merged.positions.insert(state.positions.begin(), state.positions.end());
  }
  return merged;
}

}  // namespace titanium::data
