#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include "titanium/models/hugging_face_adapter.h"

namespace titanium::models {
namespace {

constexpr int64_t kExperts = 3, kRows = 4, kColumns = 2;

// Stacked experts [E, out, in] as one tensor [out, in] for each.
std::vector<HuggingFacePiece> expert_pieces(int64_t head_rows = 0) {
  std::vector<HuggingFacePiece> pieces;
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    pieces.push_back({.name = fmt::format("experts.{}.weight", expert),
                      .box = {.offset = {expert, 0, 0}, .shape = {1, kRows, kColumns}},
                      .dropped_dims = 1,
                      .head_rows = head_rows,
                      .stand_in = ""});
  }
  return pieces;
}

TEST(HuggingFacePieces, AnExpertIsATensorWithoutTheStackedDim) {
  for (const HuggingFacePiece& piece : expert_pieces()) EXPECT_EQ(piece.shape(), (Shape{kRows, kColumns}));
  EXPECT_EQ(whole_piece("w", {4, 2}).shape(), (Shape{4, 2}));
}

TEST(HuggingFacePieces, EveryBoxOfStackedExpertsIsWrittenAndReadRowByRow) {
  const Tensor whole = at::arange(kExperts * kRows * kColumns, at::kFloat).view({kExperts, kRows, kColumns});
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    for (int64_t row = 0; row < kRows; ++row) {
      const Box box{.offset = {expert, row, 1}, .shape = {kExperts - expert, kRows - row, 1}};
      const Tensor part = box_of(whole, box).clone(), read = at::zeros(box.shape);
      std::map<std::string, Tensor> theirs;
      for (const auto& piece : expert_pieces()) theirs[piece.name] = at::zeros(piece.shape());
      for_each_run(expert_pieces(), box, part, [&](const HuggingFacePiece& piece, const Box& rows, const Tensor& view) {
        box_of(theirs.at(piece.name), rows).copy_(view);
      });
      for (int64_t i = 0; i < kExperts; ++i) {
        const Tensor expected = at::zeros({kRows, kColumns});
        if (i >= expert) expected.slice(0, row).slice(1, 1).copy_(whole[i].slice(0, row).slice(1, 1));
        EXPECT_TRUE(at::equal(theirs.at(fmt::format("experts.{}.weight", i)), expected));
      }
      for_each_run(expert_pieces(), box, read, [&](const HuggingFacePiece& piece, const Box& rows, const Tensor& view) {
        Tensor(view).copy_(box_of(theirs.at(piece.name), rows));
      });
      EXPECT_TRUE(at::equal(read, part));
    }
  }
}

TEST(HuggingFacePieces, RowsOfHeadsArePermutedInsideEachPiece) {
  const Tensor whole = at::arange(kExperts * kRows * kColumns, at::kFloat).view({kExperts, kRows, kColumns});
  const Box all{.offset = {0, 0, 0}, .shape = {kExperts, kRows, kColumns}};
  for_each_run(expert_pieces(/*head_rows=*/kRows), all, whole,
               [&](const HuggingFacePiece& piece, const Box& rows, const Tensor& view) {
                 // Even rows of a head come first there, then the odd ones.
                 const Tensor ours = whole[piece.box.offset[0]];
                 const int64_t first = rows.offset[0] == 0 ? 0 : 1;
                 EXPECT_TRUE(at::equal(view, ours.slice(0, first, kRows, 2)));
                 EXPECT_EQ(rows, (Box{{first * kRows / 2, 0}, {kRows / 2, kColumns}}));
               });
}

TEST(HuggingFacePieces, StackedExpertsMayShareATransposedTensor) {
  // Gate and up [E, out, in] in one tensor [E, in, 2 out].
  const Shape ours = {kExperts, kRows, kColumns}, shared = {kExperts, kColumns, 2 * kRows};
  const Tensor gate = at::arange(volume(ours), at::kFloat).view(ours), up = gate + 1000;
  const Tensor theirs = at::zeros(shared), expected = at::cat({gate.transpose(1, 2), up.transpose(1, 2)}, 2);
  for (const int64_t half : {0, 1}) {
    HuggingFacePiece piece = whole_piece("gate_up", ours);
    piece.transposed = true;
    EXPECT_EQ(piece.shape(), (Shape{kExperts, kColumns, kRows}));
    piece.whole_shape = shared;
    piece.begin = {0, 0, half * kRows};
    EXPECT_EQ(piece.shape(), shared);
    const Tensor whole = half == 0 ? gate : up;
    for (const Box& box : {Box{{0, 0, 0}, {1, kRows, kColumns}}, Box{{1, 1, 0}, {2, 3, kColumns}},
                           Box{{1, 0, 0}, {2, 1, 1}}, Box{{1, 0, 1}, {2, 1, 1}}}) {
      for_each_run({piece}, box, box_of(whole, box), [&](const HuggingFacePiece&, const Box& at, const Tensor& view) {
        box_of(theirs, at).copy_(view);
        Tensor back = at::zeros(at.shape);
        EXPECT_TRUE(at::equal(back.copy_(box_of(expected, at)), view));
      });
    }
  }
  EXPECT_TRUE(at::equal(theirs, expected));
}

}  // namespace
}  // namespace titanium::models
