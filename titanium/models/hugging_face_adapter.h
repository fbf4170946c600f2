// A model at Hugging Face: the names and the layout of its weights, and its config.json.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "titanium/tensor/parameter.h"

namespace titanium::models {

// A tensor at Hugging Face that holds a box of one of our parameters. Experts that we stack as [E, out, in] are E
// pieces, each a tensor [out, in]; or one piece that is transposed, part of a tensor [E, in, out of gate and up].
struct HuggingFacePiece {
  std::string name;
  Box box;                   // of our parameter
  int64_t dropped_dims = 0;  // leading dims of the box, each of size 1, that their tensor does not have
  int64_t head_rows = 0;     // rows are permuted inside heads of that many rows, see row_runs; 0: the same order
  // The tensor to take where a folder leaves this one out, because the two are tied or names have a prefix there; or
  // empty.
  std::string stand_in;
  bool transposed = false;  // the last two dims change places; then head_rows is 0
  // Where their tensor holds other pieces as well: its shape, and the index at which this one begins. Else empty.
  Shape whole_shape, begin;

  Shape shape() const;  // of their tensor
};

// The whole parameter as one tensor of the same layout.
HuggingFacePiece whole_piece(std::string name, const Shape& global_shape);

class HuggingFaceAdapter {
 public:
  virtual ~HuggingFaceAdapter() = default;

  // The tensors that together hold the parameter or persistent buffer, each element once. None for a buffer that is
  // not there: it is read as zeros, and left out where weights are written.
  virtual std::vector<HuggingFacePiece> pieces(const std::string& fqn, const Shape& global_shape) const = 0;
  // The same under the names of others who publish the model's weights, where it is one tensor of the same layout; none
  // if there are no others.
  virtual std::vector<HuggingFacePiece> other_pieces(const std::string& /*fqn*/, const Shape& /*global_shape*/) const {
    return {};
  }
  // config.json of a folder with the model's weights in `dtype`.
  virtual std::string config_json(Dtype dtype) const = 0;
  // Whether a checkpoint of the model may hold a tensor of that name, ours or Hugging Face's, which is no parameter: a
  // table that is computed anew, or the copy of a tied weight.
  virtual bool is_redundant(const std::string& name) const = 0;
};

// Rows that lie one after another at Hugging Face, from their row `theirs` on: our rows ours, ours + step, ...
struct RowRun {
  int64_t theirs = 0;
  int64_t ours = 0;
  int64_t step = 1;
  int64_t count = 0;
  bool operator==(const RowRun&) const = default;
};

// Rows [begin, begin + count) of the piece, in our order, which may begin and end inside a head. Row 2i + j of a head
// is row j * head_rows / 2 + i of that head at Hugging Face.
std::vector<RowRun> row_runs(const HuggingFacePiece& piece, int64_t begin, int64_t count);

// `part` holds `box` of a parameter. Calls `use` for each box of their tensors that it covers and that is contiguous
// rows there, with the view of `part` that has the same elements in the same order.
void for_each_run(const std::vector<HuggingFacePiece>& pieces, const Box& box, const Tensor& part,
                  const std::function<void(const HuggingFacePiece&, const Box& theirs, const Tensor& view)>& use);

}  // namespace titanium::models
