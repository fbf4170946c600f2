// Options of YaRN under torchtitan's names, and in config.json.
#pragma once

#include <optional>

#include "titanium/models/json_reader.h"
#include "titanium/ops/rope.h"

namespace titanium::models::decoder {

struct YarnArgs {
  double factor = 40;
  double beta_fast = 32;
  double beta_slow = 1;
  int64_t original_seq_len = 4096;
  bool truncate = true;  // the bounds between frequencies that stay and those that are stretched are whole numbers
  // By how much scores are raised: see table() and score_factor(). 0: not given.
  double mscale = 0;
  double mscale_all_dim = 0;

  // For the table of rope, which multiplies queries and keys by yarn_mscale(mscale) / yarn_mscale(mscale_all_dim);
  // where one of the two is not given, by yarn_mscale(1).
  ops::YarnScaling table() const;
  // The factor on attention's scores beside that: the square of the concentration of `mscale_all_dim`, or 1.
  double score_factor() const;
};

// rope_theta and YaRN out of config.json, in both spellings: `rope_theta` and `rope_scaling` (with `type` or
// `rope_type`) of published folders, or everything in `rope_parameters` (transformers 5). No YaRN for plain rope.
// Throws UsageError for another kind of scaling.
struct RopeOptions {
  double theta;
  std::optional<YarnArgs> yarn;
};
RopeOptions read_yarn(const JsonReader& config, double default_theta);
// `rope_scaling` in the published spelling; null without YaRN.
nlohmann::ordered_json yarn_json(const std::optional<YarnArgs>& yarn);

}  // namespace titanium::models::decoder
