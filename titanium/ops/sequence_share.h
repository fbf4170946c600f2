// A sequence spread over ranks. S tokens in all, s = S / ranks of them here.
#pragma once

#include <span>
#include <vector>

#include "titanium/tensor/tensor.h"

namespace titanium::ops {

// Note [Head and tail]
// A sequence is cut into equal chunks of neighbouring tokens. In causal attention later tokens see more, so chunks in
// order of ranks would leave the first rank idle and make everybody wait for the last. With head and tail there are two
// chunks per rank, and rank r holds chunk r and chunk 2n-1-r: every rank sees as many pairs as any other. A rank's
// rows are its chunks one after the other, in ascending order, in inputs, labels, positions and everything between.
struct SequenceShare {
  int64_t rank = 0;
  int64_t ranks = 1;
  bool head_and_tail = false;

  int64_t chunks_per_rank() const { return head_and_tail ? 2 : 1; }
  int64_t chunks() const { return ranks * chunks_per_rank(); }  // of the whole sequence
};

// The chunks of a rank, ascending.
std::vector<int64_t> chunks_of(const SequenceShare& share, int64_t rank);

// This rank's rows of x, whose dim `dim` is the whole sequence.
Tensor share_of(const Tensor& x, int64_t dim, const SequenceShare& share);
// The same of rows of `seq_len` token ids: [B, S] -> [B, s].
std::vector<int64_t> share_of(std::span<const int64_t> tokens, int64_t seq_len, const SequenceShare& share);

}  // namespace titanium::ops
