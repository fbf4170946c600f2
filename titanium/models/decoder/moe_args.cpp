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

const ArgFields<MoeArgs>& moe_fields() {
  static const auto has_groups = [](const MoeArgs& args) { return args.num_expert_groups > 0; };
  static const ArgFields<MoeArgs> fields = [] {
    ArgField<MoeArgs> shared = field<MoeArgs>("num_shared_experts", &MoeArgs::num_shared_experts);
    shared.take = [](const JsonReader& config, std::string_view key, MoeArgs& args) {
      args.num_shared_experts = config.count_or(key, args.num_shared_experts);  // may be none
    };
    return ArgFields<MoeArgs>{
        field<MoeArgs>("num_experts", &MoeArgs::num_experts),
        shared,
        field<MoeArgs>("top_k", &MoeArgs::top_k),
        field<MoeArgs>("moe_hidden_dim", &MoeArgs::moe_hidden_dim),
        field<MoeArgs>("score_func", &MoeArgs::score_func),
        field<MoeArgs>("route_norm", &MoeArgs::route_norm),
        field<MoeArgs>("route_scale", &MoeArgs::route_scale),
        only_where<MoeArgs>([](const MoeArgs& args) { return args.gate_bias; },
                            field<MoeArgs>("gate_bias", &MoeArgs::gate_bias)),
        field<MoeArgs>("score_before_experts", &MoeArgs::score_before_experts),
        only_where<MoeArgs>(has_groups, field<MoeArgs>("num_expert_groups", &MoeArgs::num_expert_groups)),
        only_where<MoeArgs>(has_groups, field<MoeArgs>("num_limited_groups", &MoeArgs::num_limited_groups)),
        field<MoeArgs>("load_balance_coeff", &MoeArgs::load_balance_coeff),
        only_where<MoeArgs>([](const MoeArgs& args) { return args.clamped_swiglu; },
                            field<MoeArgs>("swiglu_limit", &MoeArgs::swiglu_limit)),
    };
  }();
  return fields;
}

}  // namespace titanium::models::decoder
