#include "titanium/models/deepseek_v3/args.h"

namespace titanium::models::deepseek_v3 {
namespace {

struct Experts {
  int64_t count, shared, top_k, hidden_dim;
};

decoder::MoeArgs chosen_by_softmax(const Experts& experts) {
  decoder::MoeArgs moe;
  moe.num_experts = experts.count;
  moe.num_shared_experts = experts.shared;
  moe.top_k = experts.top_k;
  moe.moe_hidden_dim = experts.hidden_dim;
  moe.score_func = "softmax";
  moe.score_before_experts = false;
  return moe;
}

// What all flavors share. YaRN is that of the published models, whatever the length of the sequences.
Args common(double mscale) {
  Args args;
  args.norm_eps = args.latent_norm_eps = 1e-5;
  args.max_seq_len = 4 * 4096;
  args.yarn = decoder::YarnArgs{.mscale = mscale, .mscale_all_dim = mscale};
  return args;
}

Args inside_documents(Args args) {
  args.attn_type = "flex";
  args.attn_mask_type = "block_causal";
  return args;
}

Args debug() {
  Args args = common(0.70);
  args.vocab_size = 2048;
  args.dim = 256;
  args.n_layers = 6;
  args.inter_dim = 1024;
  args.moe = chosen_by_softmax({8, 2, 3, 256});
  return args;
}

Args deepseek_16b() {
  Args args = inside_documents(common(0.70));
  args.vocab_size = 102400;
  args.dim = 2048;
  args.n_layers = 27;
  args.moe = chosen_by_softmax({64, 2, 6, 1408});
  return args;
}

Args deepseek_236b() {
  Args args = inside_documents(common(1.0));
  args.vocab_size = 102400;
  args.dim = 5120;
  args.n_layers = 60;
  args.n_heads = 128;
  args.inter_dim = 12288;
  args.q_lora_rank = 1536;
  args.moe = chosen_by_softmax({160, 2, 6, 1536});
  args.moe.num_expert_groups = 8;
  args.moe.num_limited_groups = 3;
  args.moe.route_scale = 16;
  return args;
}

Args deepseek_671b() {
  Args args = inside_documents(common(1.0));
  args.vocab_size = 129280;
  args.dim = 7168;
  args.n_layers = 61;
  args.n_dense_layers = 3;
  args.n_heads = 128;
  args.inter_dim = 18432;
  args.q_lora_rank = 1536;
  args.moe = chosen_by_softmax({256, 1, 8, 2048});
  args.moe.num_expert_groups = 8;
  args.moe.num_limited_groups = 4;
  args.moe.score_func = "sigmoid";
  args.moe.route_norm = true;
  args.moe.route_scale = 2.5;
  return args;
}

}  // namespace

const std::map<std::string, Args>& flavors() {
  static const std::map<std::string, Args> flavors = {
      {"debugmodel", debug()},   {"debugmodel_flex_attn", inside_documents(debug())},
      {"16B", deepseek_16b()},   {"236B", deepseek_236b()},
      {"671B", deepseek_671b()},
  };
  return flavors;
}

bool is_v3(const Args& args) { return args.moe.score_func == "sigmoid"; }

}  // namespace titanium::models::deepseek_v3
