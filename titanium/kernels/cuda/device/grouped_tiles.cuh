// How grouped products are cut into tiles, and what of shared memory they use.
#pragma once

#include <cstdint>

#include "titanium/kernels/cuda/device/tensor_core.cuh"

namespace titanium::kernels::grouped {

// Note [Tiles of grouped products]
// A cluster of two blocks computes tiles of 256 x 256: each block 128 rows of them, in two warp groups of 64 rows each.
// The columns' operand is the same for both blocks, so each fetches half of it for both. The last rows of an expert, if
// they are 128 or fewer, make tiles of 128 x 512 instead, with columns of its own for each block; and a warp group
// without rows leaves the tensor cores to the other. A third warp group copies
// boxes (Note [Boxes in shared memory]) into a ring of stages, 128 bytes of the sum at a time, and runs ahead into
// the next tile while results are stored. Rows of an expert begin anywhere: a box may reach into the rows of the next
// expert, and its results there are not stored; where rows are summed over, they are set to zero in shared memory.
//
// Tensor cores read float8 along lines only. So every operand of float8 comes with what is summed over lying together:
// the gradient of rows takes transposed matrices, and that of a weight lines whose parts of each expert are filled up
// with zeros to a multiple of kDepth. Sums are multiplied by the scales of their row and column at the end.
constexpr int kThreads = 384;
constexpr int kBlocks = 2;  // of a cluster
constexpr int kRows = 128;  // of a block
constexpr int kColumns = 256;
constexpr int kDepthBytes = tensor_core::kBoxRowBytes;
constexpr int kStages = 4;
constexpr int kBoxBytes = 64 * tensor_core::kBoxRowBytes;
constexpr int kRowBytes = kRows / 64 * kBoxBytes;
constexpr int kColumnBytes = kColumns / 64 * kBoxBytes;
constexpr int kStageBytes = kRowBytes + kColumnBytes;

// kTwoResults: products of the same rows with two matrices, both stored; of bfloat16 also SwiGLU of them.
enum class Form { kForward, kTwoResults, kInputGrad, kWeightGrad };

using tensor_core::Element;
using tensor_core::Reads;

// A kind of product: what it makes, of which elements.
template <Form kFormOf, Element kElementOf>
struct Kind {
  static constexpr Form kForm = kFormOf;
  static constexpr Element kElement = kElementOf;
  static constexpr bool kFloat8 = kElement == Element::kE4m3;
  static constexpr bool kOfWeight = kForm == Form::kWeightGrad;
  static constexpr int kDepth = kFloat8 ? kDepthBytes : kDepthBytes / 2;  // elements of a step of the sum
  static constexpr Reads kReadsRows = kOfWeight && !kFloat8 ? Reads::kAcross : Reads::kAlong;
  static constexpr Reads kReadsColumns =
      kForm == Form::kForward || kForm == Form::kTwoResults || kFloat8 ? Reads::kAlong : Reads::kAcross;
};

// How much one copy brings: boxes that are read along have 128 rows, those that are read across 64.
constexpr int copy_rows(Reads reads) { return reads == Reads::kAlong ? 128 : 64; }
constexpr int copy_bytes(Reads reads) { return copy_rows(reads) * tensor_core::kBoxRowBytes; }

struct KernelArgs {
  CUtensorMap rows[2];     // operands; the second ones of two-part sums
  CUtensorMap columns[2];  // and the second matrices of two results
  CUtensorMap results[3];  // of bfloat16
  const int32_t* ends;
  int num_experts;
  int height;  // of a result of a weight's gradient
  int width;   // of a result
  int depth;   // of one part of the sum; not of a weight's gradient
  int parts;   // of the sum
  void* out[3];
  bool accumulate;
  // Of float8, as rows and columns: what a number stands for is the number times that. By row or by line of the
  // matrices [E, width]; of a weight's gradient [E, height] and [E, width].
  const float* row_scales[2];
  const float* column_scales[2];
};

struct alignas(1024) Stage {
  unsigned char rows[kRowBytes];
  unsigned char columns[kColumnBytes];
};
struct alignas(1024) Box {
  unsigned char rows[64][tensor_core::kBoxRowBytes];
};
struct Shared {
  Stage stages[kStages];
  Box results[2][2];  // of each group that multiplies: one is filled while the other is copied out
  uint64_t full[kStages];
  uint64_t free[kStages];
};
constexpr int64_t kSharedBytes = sizeof(Shared) + 1024;  // dynamic shared memory need not begin at a multiple of 1024

// The part of a tile that this block computes.
struct Tile {
  int expert;
  int begin, end;  // the rows of the expert
  int row;         // the first one: of all rows, or of the matrix
  int last;        // where rows end that count
  int column;
  int columns;  // up to 256, or up to 128 of each of two results
  bool shared;  // both blocks have the same columns, all 256 of them
  int blocks;   // steps of the sum
  __device__ bool is_idle(int group = 0) const { return row + 64 * group >= last; }
};

// The tiles of a cluster, in the order in which all its warps go through them.
template <typename Kind>
class Tiles {
 public:
  __device__ Tiles(const KernelArgs& args, unsigned rank)
      : args_(args), rank_(static_cast<int>(rank)), index_(static_cast<int>(blockIdx.x) / kBlocks) {
    open(0);
  }
  __device__ bool next(Tile& tile) {
    while (index_ - before_ >= count_) {
      before_ += count_;
      begin_ = end_;
      if (expert_ + 1 >= args_.num_experts) return false;
      open(expert_ + 1);
    }
    const int at = index_ - before_;
    index_ += static_cast<int>(gridDim.x) / kBlocks;
    tile.expert = expert_;
    tile.begin = begin_;
    tile.end = end_;
    tile.blocks = kByRows ? args_.parts * steps(args_.depth) : steps(end_ - begin_);
    const bool tall = at < tall_;
    const int row = tall ? (at % pairs_ * kBlocks + rank_) * kRows : pairs_ * kBlocks * kRows;
    tile.column = (tall ? at / pairs_ : (at - tall_) * kBlocks + rank_) * kWidth;
    tile.columns = min(kWidth, args_.width - tile.column);
    tile.shared = tall && tile.columns == kWidth;
    tile.row = kByRows ? begin_ + row : row;
    tile.last = tile.columns <= 0 ? 0 : kByRows ? end_ : args_.height;
    return true;
  }

 private:
  static constexpr bool kByRows = !Kind::kOfWeight;
  static constexpr int kWidth = Kind::kForm == Form::kTwoResults ? kColumns / 2 : kColumns;
  static __device__ int steps(int depth) { return (depth + Kind::kDepth - 1) / Kind::kDepth; }
  __device__ void open(int expert) {
    expert_ = expert;
    end_ = args_.ends[expert];
    const int rows = kByRows ? end_ - begin_ : args_.height;
    pairs_ = (rows + kRows - 1) / (kBlocks * kRows);
    tall_ = pairs_ * ((args_.width + kWidth - 1) / kWidth);
    const bool rest = rows > pairs_ * kBlocks * kRows;
    count_ = tall_ + (rest ? (args_.width + kBlocks * kWidth - 1) / (kBlocks * kWidth) : 0);
  }
  const KernelArgs& args_;
  int rank_, index_, before_ = 0, expert_ = 0, begin_ = 0, end_ = 0, pairs_ = 0, tall_ = 0, count_ = 0;
};

// Which stage comes next, and which phase of its barriers.
struct Turn {
  int stage = 0;
  unsigned phase = 0;
  __device__ void advance(int stages = 1) {
    stage += stages;
    phase ^= static_cast<unsigned>(stage / kStages) & 1U;
    stage %= kStages;
  }
};

}  // namespace titanium::kernels::grouped
