#include "titanium/models/hugging_face_adapter.h"

#include <algorithm>
#include <utility>

#include "titanium/base/error.h"
#include "titanium/checkpoint/boxes.h"

namespace titanium::models {
namespace {

Shape without_leading(const Shape& shape, int64_t dims) { return Shape(shape.begin() + dims, shape.end()); }

}  // namespace

Shape HuggingFacePiece::shape() const {
  if (!whole_shape.empty()) return whole_shape;
  Shape shape = without_leading(box.shape, dropped_dims);
  if (transposed) std::swap(shape.at(shape.size() - 2), shape.back());
  return shape;
}

HuggingFacePiece whole_piece(std::string name, const Shape& global_shape) {
  return {.name = std::move(name), .box = {.offset = Shape(global_shape.size(), 0), .shape = global_shape}};
}

std::vector<RowRun> row_runs(const HuggingFacePiece& piece, int64_t begin, int64_t count) {
  if (piece.head_rows == 0) return {{.theirs = begin, .ours = begin, .step = 1, .count = count}};
  std::vector<RowRun> runs;
  const int64_t end = begin + count, head_rows = piece.head_rows;
  for (int64_t head = begin / head_rows * head_rows; head < end; head += head_rows) {
    const int64_t first = std::max(begin, head) - head, last = std::min(end, head + head_rows) - head;
    for (const int64_t j : {0, 1}) {
      const int64_t i = (first - j + 1) / 2, i_end = (last - j + 1) / 2;
      if (i >= i_end) continue;
      runs.push_back({.theirs = head + j * head_rows / 2 + i, .ours = head + 2 * i + j, .step = 2, .count = i_end - i});
    }
  }
  return runs;
}

void for_each_run(const std::vector<HuggingFacePiece>& pieces, const Box& box, const Tensor& part,
                  const std::function<void(const HuggingFacePiece&, const Box& theirs, const Tensor& view)>& use) {
  TI_ASSERT(part.sizes() == at::IntArrayRef(box.shape), "the tensor is not that of box {}", checkpoint::to_string(box));
  int64_t covered = 0;
  for (const HuggingFacePiece& piece : pieces) {
    const auto common = intersection(box, piece.box);
    if (!common) continue;
    // The part's view of what is common, and its place in their tensor.
    Tensor view = part;
    Box theirs{.offset = {}, .shape = without_leading(common->shape, piece.dropped_dims)};
    for (size_t dim = 0; dim < box.shape.size(); ++dim) {
      view = view.narrow(static_cast<int64_t>(dim), common->offset[dim] - box.offset[dim], common->shape[dim]);
      if (static_cast<int64_t>(dim) >= piece.dropped_dims) {
        theirs.offset.push_back(common->offset[dim] - piece.box.offset[dim]);
      }
    }
    for (int64_t dim = 0; dim < piece.dropped_dims; ++dim) view = view.select(0, 0);
    covered += view.numel();
    if (piece.transposed) {
      view = view.transpose(-2, -1);
      std::swap(theirs.offset.at(theirs.offset.size() - 2), theirs.offset.back());
      std::swap(theirs.shape.at(theirs.shape.size() - 2), theirs.shape.back());
    }
    const int64_t first_row = theirs.offset.at(0);
    for (size_t dim = 0; dim < piece.begin.size(); ++dim) theirs.offset.at(dim) += piece.begin[dim];
    for (const RowRun& run : row_runs(piece, first_row, theirs.shape[0])) {
      Box rows = theirs;
      rows.offset[0] += run.theirs - first_row;
      rows.shape[0] = run.count;
      const int64_t first = run.ours - first_row;
      use(piece, rows, view.slice(0, first, first + (run.count - 1) * run.step + 1, run.step));
    }
  }
  TI_ASSERT(covered == part.numel(), "{} of {} elements have a place", covered, part.numel());
}

}  // namespace titanium::models
