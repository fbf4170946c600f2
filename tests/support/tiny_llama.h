// A Llama that is smaller than every flavor.
#pragma once

#include "titanium/models/llama3/args.h"

namespace titanium::test {

inline models::llama3::Args tiny_llama(int64_t seq_len, int64_t kv_heads = 4) {
  models::llama3::Args args;
  args.dim = 32;
  args.n_layers = 3;
  args.n_heads = 4;
  args.n_kv_heads = kv_heads;
  args.head_dim = 8;
  args.ffn_hidden_dim = 64;
  args.vocab_size = 2048;
  args.max_seq_len = seq_len;
  return args;
}

}  // namespace titanium::test
