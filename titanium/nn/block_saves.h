// What a transformer block keeps from its forward for its backward. The results are the same bits either way.
#pragma once

namespace titanium::nn {

enum class BlockSaves {
  kEverything,     // what its operators need; norms, rope and, except in float8, SwiGLU are recomputed all the same
  kGateAndUp,      // in float8, SwiGLU is recomputed as well
  kAttentionHalf,  // the two products of the feed-forward half are recomputed
  kInput,          // only the block's input; the whole block is recomputed
};

}  // namespace titanium::nn
