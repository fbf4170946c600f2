#include "titanium/models/decoder/yarn_args.h"

namespace titanium::models::decoder {

ops::YarnScaling YarnArgs::table() const {
  const bool both = mscale != 0 && mscale_all_dim != 0;
  return {
      .factor = factor,
      .beta_fast = beta_fast,
      .beta_slow = beta_slow,
      .original_max_position = original_seq_len,
      .whole_bounds = truncate,
      .concentration = both ? ops::yarn_concentration(factor, mscale) / ops::yarn_concentration(factor, mscale_all_dim)
                            : ops::yarn_concentration(factor)};
}

double YarnArgs::score_factor() const {
  const double raised = mscale_all_dim == 0 ? 1 : ops::yarn_concentration(factor, mscale_all_dim);
  return raised * raised;
}

RopeOptions read_yarn(const JsonReader& config, double default_theta) {
  const bool together = config.has("rope_parameters");
  const double theta = config.positive_or("rope_theta", default_theta);
  RopeOptions rope{.theta = together ? config.object("rope_parameters").positive_or("rope_theta", theta) : theta,
                   .yarn = std::nullopt};
  const char* key = together ? "rope_parameters" : "rope_scaling";
  if (!config.has(key)) return rope;
  const JsonReader scaling = config.object(key);
  const std::string type = scaling.text_or("rope_type", scaling.text_or("type", "default"));
  if (type == "default") return rope;
  if (type != "yarn") scaling.fail(scaling.has("rope_type") ? "rope_type" : "type", "\"yarn\" or \"default\"");
  if (scaling.has("attention_factor")) scaling.fail("attention_factor", "left out: it follows from the other options");
  YarnArgs yarn;
  yarn.factor = scaling.positive("factor");
  yarn.beta_fast = scaling.positive_or("beta_fast", 32);
  yarn.beta_slow = scaling.positive_or("beta_slow", 1);
  yarn.original_seq_len = scaling.size("original_max_position_embeddings", kLongestSequence);
  yarn.truncate = scaling.flag_or("truncate", true);
  yarn.mscale = scaling.positive_or("mscale", 0);
  yarn.mscale_all_dim = scaling.positive_or("mscale_all_dim", 0);
  if (yarn.beta_fast <= yarn.beta_slow) scaling.fail("beta_fast", "larger than beta_slow");
  rope.yarn = yarn;
  return rope;
}

nlohmann::ordered_json yarn_json(const std::optional<YarnArgs>& yarn) {
  if (!yarn) return nullptr;
  nlohmann::ordered_json json = {{"rope_type", "yarn"},
                                 {"factor", yarn->factor},
                                 {"beta_fast", yarn->beta_fast},
                                 {"beta_slow", yarn->beta_slow},
                                 {"original_max_position_embeddings", yarn->original_seq_len},
                                 {"truncate", yarn->truncate}};
  if (yarn->mscale != 0) json["mscale"] = yarn->mscale;
  if (yarn->mscale_all_dim != 0) json["mscale_all_dim"] = yarn->mscale_all_dim;
  return json;
}

}  // namespace titanium::models::decoder
