// What makes a parameter the weight of a float8 linear layer. ops/linear/float8.h computes with it.
#pragma once

#include <functional>

#include "titanium/tensor/tensor.h"

namespace titanium {

// Stands for data / scale. The scale is fp32: a scalar, or one number per row or column, shaped to broadcast.
struct Float8Tensor {
  Tensor data;
  Tensor scale;       // undefined where a kernel has made the tensor, which gives the
  Tensor reciprocal;  // 1 / scale instead; undefined elsewhere
};

// Note [Float8 recipes]
// A linear layer has three products: output = x W^T, input gradient = g W, weight gradient = g^T x. A recipe says how
// their operands become float8. They are torchao's:
//
//   tensorwise          one scale per tensor; x and W in e4m3, g in e5m2
//   rowwise             e4m3; one scale per row of the left and per column of the right operand, that is, along the
//                       dim that the product sums over, rounded down to a power of two; so each operand is quantised
//                       twice, once for each of its products
//   rowwise_with_gw_hp  the output as rowwise; the input gradient with one scale for W; the weight gradient stays in
//                       high precision
//   mx                  e4m3; one scale for each 32 elements along the dim that the product sums over, a power of two
//
// Weights of experts (ops/experts/grouped_float8.h) have rowwise or mx, with the rows of an expert as those of a layer.
enum class Float8Recipe { kTensorwise, kRowwise, kRowwiseWithGwHp, kMx };

struct Float8Weight {
  Float8Recipe recipe = Float8Recipe::kTensorwise;
  bool emulate = false;  // round to float8, but multiply in float32, also where there are tensor cores

  // With tensor parallelism: the dim of the weight that is cut, and the maximum over the ranks that hold the other
  // parts, element by element, in place. Scales that cover a cut dim need it.
  int64_t cut_dim = -1;
  std::function<void(const Tensor&)> max_over_parts;

  // The part as the two products take it that use it, [out, in] and [in, out]. Made by the first use after a change, or
  // by FSDP. Not kept between uses without `keeps_copies`: right where each is used once in a step.
  Float8Tensor for_output, for_input_grad;
  bool keeps_copies = true;

  Tensor amax;  // of the whole parameter, over all ranks; undefined after a change

  // With FSDP: the weight is gathered as float8 (tensorwise only).
  bool is_gathered = false;
  Float8Tensor shard;  // what travels; undefined after a change

  void drop_part() { for_output = for_input_grad = {}; }
  void value_changed() { drop_part(), amax = Tensor(), shard = {}; }
};

}  // namespace titanium
