// A parameter knows its name, its global shape, which part of it is here, and its gradient.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "titanium/tensor/float8_weight.h"

namespace titanium {

// A box of a global tensor: `shape` elements per dim from index `offset` on.
struct Box {
  Shape offset;
  Shape shape;
  bool operator==(const Box&) const = default;
};

// All of a tensor of that shape.
Box whole_box(const Shape& shape);

// A view of the box of the whole tensor.
Tensor box_of(const Tensor& whole, const Box& box);

// What two boxes of the same tensor have in common; nothing when that is empty. A box without dims is one element.
std::optional<Box> intersection(const Box& a, const Box& b);

// The mesh axis `axis` cuts a parameter along `dim`.
struct Placement {
  std::string axis;
  int64_t dim = 0;
};

// By which numbering of the ranks a parameter is placed: Note [Three views of the ranks] in parallel/parallel_dims.h.
// Ordinary parameters live in the dense view. Those of the sparse view are stacked experts: dim 0 is that of experts.
enum class RankView { kDense, kSparse };

// Deferred work on gradients of weights, in its order.
using GradQueue = std::vector<std::function<void()>>;

// Note [Gradients are ours]
// Parameters are not autograd leaves that autograd fills. An operator that uses a parameter adds its weight gradient
// inside its own backward: there it can accumulate in the GEMM, and it knows when the gradient is complete.
// `value` still says requires_grad, because that is what makes autograd record an operator whose other inputs (tokens,
// the first block's input) need no gradient.
//
// Note [Part and shard]
// Tensor parallelism gives a rank a `part` of the parameter to compute with. Sharded data parallelism stores only a
// `shard` of that part on a rank and gathers the part around each use. Without the one, part is the whole; without the
// other, shard is the part. Operators see the part; the optimizer, clipping and checkpoints see the shard.
class Parameter {
 public:
  // Describes a whole parameter; `materialize` allocates what is stored of it.
  Parameter(std::string fqn, Shape global_shape);

  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  std::string fqn;     // torchtitan's name: layers.3.attention.wq.weight
  Shape global_shape;  // of the whole parameter, on all ranks together
  Box part;            // what operators see here
  Box shard;           // what is stored here
  RankView view = RankView::kDense;
  int64_t shard_dim = 0;              // the dim of the part along which sharded data parallelism cuts it
  std::vector<Placement> placements;  // the axes that cut it, in the order of cutting; on all others it is replicated
  // Axes that replicate it and on which every rank computes its whole gradient, because all of them see the same rows.
  // Over the others its gradient is summed: Note [Cut or replicated] in parallel/placement.h.
  std::vector<std::string> equal_grads;
  Tensor value;  // the shard: master copy, in training.dtype
  Tensor grad;   // of the shard; undefined, or of `value`'s shape and dtype

  bool is_linear_weight = false;         // [out, in], used in products alone: those of ops/linear/linear.h
  std::unique_ptr<Float8Weight> float8;  // null: its products are computed in the dtype of the activations

  // `pinned` host memory can be copied to a GPU without the host waiting.
  void materialize(Dtype dtype, Device device, bool pinned = false);

  // --- For operators ---

  int64_t rows() const { return part.shape[0]; }
  // The part in the dtype of the computation. Casts once after each change; the cast is kept until `value_changed`.
  Tensor in(Dtype dtype) const;
  // The same, in whatever dtype it is here.
  Tensor as_stored() const { return gathers_ ? gathered_part() : value.detach(); }
  // Adds to the gradient of the part.
  void accumulate(const Tensor& gradient);
  // Where the gradient of the part is summed: undefined before the first contribution.
  Tensor& grad_sum() { return gathers_ ? part_grad : grad; }
  // Where the first contribution should be written, if someone wants it in a place of their own.
  Tensor grad_place;
  // The same for a kernel that adds to the sum in its memory. If `is_first`, the sum has been made just now, on
  // `device`, and holds nothing yet: the caller must fill it.
  struct GradSum {
    Tensor sum;
    bool is_first;
  };
  GradSum open_grad_sum(Device device);
  // If set, products that only make the gradient are queued there. What is quick (norms, embeddings) is not deferred.
  GradQueue* deferred = nullptr;

  // --- For whoever writes to `value` (optimizer, initialisation, loading) ---

  void value_changed();
  // What `in(dtype)` has kept of `value`; undefined where it has nothing. Whoever writes new values to both calls
  // `value_and_copy_changed` instead, and the next use need not cast.
  Tensor kept_copy(Dtype dtype) const;
  void value_and_copy_changed();
  void zero_grad() { grad = part_grad = Tensor(); }

  // --- For sharded data parallelism ---

  // From now on the part is gathered around each use, and its gradient is summed in `part_grad`, in `dtype`.
  void gather_around_use(Dtype dtype);
  void hold_gathered(Tensor whole_part);
  void hold_gathered(const Float8Tensor& whole_part);  // then only float8 products may use it
  void drop_gathered();
  Tensor part_grad;

 private:
  Tensor gathered_part() const;
  void drop_copies();
  Dtype grad_sum_dtype() const { return gathers_ ? part_grad_dtype_ : value.scalar_type(); }

  bool gathers_ = false;
  Dtype part_grad_dtype_ = at::kFloat;
  Tensor gathered_;
  mutable Tensor cast_;
};

// Note [Element numbers]
// The elements of a parameter are numbered in the order of their indices, the last one fastest, on all ranks together:
// what is random about an element depends on its number, so that every layout gets the same. The numbers of a shard of
// any dims are those of a few matrices, one after the other in the order of the shard's elements. Row r of a matrix
// holds first + r * row_stride + (0 .. columns - 1). One is enough unless two dims after the first are cut.
struct ElementNumbers {
  int64_t begin;  // of its elements in the shard
  int64_t rows;
  int64_t columns;
  int64_t first;
  int64_t row_stride;  // equals `columns` where the matrix is one stretch
  int64_t elements() const { return rows * columns; }
};
// None for an empty shard.
std::vector<ElementNumbers> element_numbers(const Parameter& parameter);

}  // namespace titanium
