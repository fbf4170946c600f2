// Sizes and rules of a feed-forward layer with experts, under torchtitan's names.
#pragma once

#include <cstdint>
#include <string>

#include "titanium/models/arg_fields.h"

namespace titanium::models::decoder {

struct MoeArgs {
  int64_t num_experts = 8;
  int64_t num_shared_experts = 1;
  int64_t top_k = 1;
  int64_t moe_hidden_dim = 0;          // of one expert; the shared experts are one layer of so many times that
  std::string score_func = "sigmoid";  // or softmax
  bool route_norm = false;
  double route_scale = 1;
  bool gate_bias = false;
  bool score_before_experts = true;
  int64_t num_expert_groups = 0;  // 0: the choice is not limited to groups
  int64_t num_limited_groups = 0;
  double load_balance_coeff = 1e-3;  // by which the bias that balances experts moves in a step; 0: there is none
  // Experts with biases, gate and up interleaved in one matrix, and a clamped activation (GPT-OSS).
  bool clamped_swiglu = false;
  double swiglu_limit = 7;
};

// Throws UsageError, which names `model`, if they contradict each other.
void check_moe(const MoeArgs& args, const std::string& model);

// Their log line follows from it (json_of); a family says under which keys its config.json has some (FieldKeys).
const ArgFields<MoeArgs>& moe_fields();

}  // namespace titanium::models::decoder
