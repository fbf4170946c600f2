#include "titanium/models/llama3/args.h"

namespace titanium::models::llama3 {
namespace {

struct Sizes {
  int64_t dim, layers, heads, kv_heads;
  double multiplier;
  int64_t multiple_of;
};

Args llama2(const Sizes& sizes) {
  Args args;
  args.dim = sizes.dim;
  args.n_layers = sizes.layers;
  args.n_heads = sizes.heads;
  args.n_kv_heads = sizes.kv_heads;
  args.head_dim = sizes.dim / sizes.heads;
  args.ffn_hidden_dim = ffn_hidden_dim(sizes.dim, sizes.multiplier, sizes.multiple_of);
  args.vocab_size = 32000;
  args.max_seq_len = 4096;
  return args;
}

Args llama3(const Sizes& sizes) {
  Args args = llama2(sizes);
  args.vocab_size = 128256;
  args.rope_theta = 500000;
  args.rope_scaling = ops::RopeScaling{};
  args.max_seq_len = 131072;
  return args;
}

Args llama3_debug() {
  Args args = llama3({256, 6, 16, 16, 1.0, 256});
  args.vocab_size = 2048;
  return args;
}

// Llama 3.2: tied embeddings, and a longer stretch.
Args llama3_small(const Sizes& sizes) {
  Args args = llama3(sizes);
  args.tied_embeddings = true;
  args.rope_scaling->factor = 32;
  return args;
}

Args inside_documents(Args args, const std::string& attn_type) {
  args.attn_type = attn_type;
  args.attn_mask_type = "block_causal";
  return args;
}

}  // namespace

int64_t ffn_hidden_dim(int64_t dim, double multiplier, int64_t multiple_of) {
  const int64_t two_thirds = 2 * 4 * dim / 3;  // of four times the dim
  const auto hidden = static_cast<int64_t>(multiplier * static_cast<double>(two_thirds));
  return (hidden + multiple_of - 1) / multiple_of * multiple_of;
}

const std::map<std::string, Args>& llama3_flavors() {
  static const std::map<std::string, Args> flavors = [] {
    const Args debug = llama3_debug();
    const Args eight = llama3({4096, 32, 32, 8, 1.3, 1024});
    return std::map<std::string, Args>{
        {"debugmodel", debug},
        {"debugmodel_flex_attn", inside_documents(debug, "flex")},
        {"debugmodel_varlen_attn", inside_documents(debug, "varlen")},
        {"1B", llama3_small({2048, 16, 32, 8, 1.5, 1024})},
        {"3B", llama3_small({3072, 28, 24, 8, 1.0, 1024})},
        {"8B", eight},
        {"8B_flex", inside_documents(eight, "flex")},
        {"8B_varlen", inside_documents(eight, "varlen")},
        {"70B", llama3({8192, 80, 64, 8, 1.3, 4096})},
        {"405B", llama3({16384, 126, 128, 8, 1.2, 4096})},
    };
  }();
  return flavors;
}

const std::map<std::string, Args>& llama2_flavors() {
  static const std::map<std::string, Args> flavors = {
      {"7B", llama2({4096, 32, 32, 32, 1.0, 256})},
      {"13B", llama2({5120, 40, 40, 40, 1.0, 256})},
      {"70B", llama2({8192, 80, 64, 8, 1.3, 4096})},
  };
  return flavors;
}

const ArgFields<Args>& fields() {
  static const ArgFields<Args> fields = decoder::dense_fields<Args>(
      /*head_dim=*/[](const Args& args) { return args.dim / args.n_heads; }, /*norm_eps=*/1e-6, /*max_seq_len=*/2048);
  return fields;
}

}  // namespace titanium::models::llama3
