#include "titanium/models/llama4/args.h"

#include <algorithm>

namespace titanium::models::llama4 {
namespace {

struct Sizes {
  int64_t dim, layers, heads, kv_heads;
  double multiplier;
  int64_t multiple_of;
  int64_t experts, interleave;
};

int64_t rounded_up(double width, int64_t multiple_of) {
  return (static_cast<int64_t>(width) + multiple_of - 1) / multiple_of * multiple_of;
}

Args llama4(const Sizes& sizes) {
  Args args;
  args.dim = sizes.dim;
  args.n_layers = sizes.layers;
  args.n_heads = sizes.heads;
  args.n_kv_heads = sizes.kv_heads;
  args.head_dim = sizes.dim / sizes.heads;
  args.vocab_size = 202048;
  args.rope_theta = 500000;
  args.max_seq_len = 1048576;
  args.interleave_moe_layer_step = sizes.interleave;
  args.moe.num_experts = sizes.experts;
  const int64_t two_thirds = 2 * 4 * sizes.dim / 3;  // of four times the dim
  const double width = std::floor(sizes.multiplier * static_cast<double>(two_thirds));
  args.ffn_hidden_dim = rounded_up(width, sizes.multiple_of);
  // A token meets the experts that are chosen and those that are shared: together they are as wide as a dense layer.
  const auto met = static_cast<double>(args.moe.top_k + args.moe.num_shared_experts);
  args.moe.moe_hidden_dim = rounded_up(width / met, sizes.multiple_of);
  return args;
}

constexpr ops::RopeScaling kScaling{
    .factor = 16, .low_frequency_factor = 1, .high_frequency_factor = 1, .original_max_position = 8192};

Args debug() {
  Args args = llama4({256, 6, 16, 16, 1.0, 256, 8, 2});
  args.vocab_size = 2048;
  args.rope_scaling = kScaling;
  return args;
}

Args with_16_experts() {
  Args args = llama4({5120, 48, 40, 8, 1.2, 2048, 16, 1});
  args.rope_scaling = kScaling;
  args.max_seq_len = 10485760;
  return args;
}

Args with_irope(Args args, int64_t chunk) {
  for (int64_t layer = 0; layer < args.n_layers; layer += 4) args.no_rope_layers.push_back(layer);
  args.fixed_attn_block_size = chunk;
  args.attn_type = "flex";
  args.attn_mask_type = "block_causal";
  return args;
}

}  // namespace

bool has_experts(const Args& args, int64_t layer) { return (layer + 1) % args.interleave_moe_layer_step == 0; }

bool has_rope(const Args& args, int64_t layer) { return !std::ranges::binary_search(args.no_rope_layers, layer); }

const std::map<std::string, Args>& flavors() {
  static const std::map<std::string, Args> flavors = [] {
    const Args with_128_experts = llama4({5120, 48, 40, 8, 1.2, 2048, 128, 2});
    return std::map<std::string, Args>{
        {"debugmodel", debug()},
        {"17bx16e", with_16_experts()},
        {"17bx128e", with_128_experts},
        {"debugmodel_irope", with_irope(debug(), 256)},
        {"17bx16e_irope", with_irope(with_16_experts(), 8192)},
        {"17bx128e_irope", with_irope(with_128_experts, 8192)},
    };
  }();
  return flavors;
}

}  // namespace titanium::models::llama4
