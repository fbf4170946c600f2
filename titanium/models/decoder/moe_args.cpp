#include "titanium/models/decoder/moe_args.h"

#include "titanium/base/error.h"

namespace titanium::models::decoder {

void check_moe(const MoeArgs& args, const std::string& model) {
  const auto refuse = [&](const std::string& sentence) { throw UsageError(fmt::format("{}: {}", model, sentence)); };
  if (args.num_experts < 1 || args.moe_hidden_dim < 1) {
    refuse(fmt::format("{} experts of {} columns are none. Both must be at least 1.", args.num_experts,
                       args.moe_hidden_dim));
  }
  if (args.top_k < 1 || args.top_k > args.num_experts) {
    refuse(fmt::format("top_k = {} must be between 1 and the number of experts, {}.", args.top_k, args.num_experts));
  }
  if (args.score_func != "softmax" && args.score_func != "sigmoid") {
    refuse(fmt::format("score_func = \"{}\" must be \"softmax\" or \"sigmoid\".", args.score_func));
  }
  if (args.num_expert_groups == 0) return;
  const int64_t groups = args.num_expert_groups, limited = args.num_limited_groups;
  if (args.num_experts % groups != 0 || args.num_experts / groups < 2) {
    refuse(fmt::format("num_expert_groups = {} must divide the {} experts into groups of two or more.", groups,
                       args.num_experts));
  }
  if (limited < 1 || limited > groups || limited * (args.num_experts / groups) < args.top_k) {
    refuse(
        fmt::format("num_limited_groups = {} must be between 1 and the number of groups, {}, and these groups must "
                    "have at least top_k = {} experts.",
                    limited, groups, args.top_k));
  }
}

nlohmann::ordered_json moe_json(const MoeArgs& args) {
  nlohmann::ordered_json json = {{"num_experts", args.num_experts},
                                 {"num_shared_experts", args.num_shared_experts},
                                 {"top_k", args.top_k},
                                 {"moe_hidden_dim", args.moe_hidden_dim},
                                 {"score_func", args.score_func},
                                 {"route_norm", args.route_norm},
                                 {"route_scale", args.route_scale},
                                 {"score_before_experts", args.score_before_experts}};
  if (args.num_expert_groups > 0) {
    json["num_expert_groups"] = args.num_expert_groups;
    json["num_limited_groups"] = args.num_limited_groups;
  }
  json["load_balance_coeff"] = args.load_balance_coeff;
  if (args.clamped_swiglu) json["swiglu_limit"] = args.swiglu_limit;
  return json;
}

}  // namespace titanium::models::decoder
