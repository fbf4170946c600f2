#include "titanium/ops/attention/context_attention.h"

#include "tests/support/documents.h"
#include "tests/support/tensors.h"
#include "titanium/ops/attention/attend_by_definition.h"

namespace titanium::ops {
namespace {

using test::random_tensor;

constexpr int64_t kEos = 9;

TEST(SequenceShare, HeadAndTailHoldEveryChunkOnce) {
  const SequenceShare share{.rank = 1, .ranks = 4, .head_and_tail = true};
  EXPECT_EQ(chunks_of(share, 1), (std::vector<int64_t>{1, 6}));
  std::vector<int64_t> all;
  for (int64_t rank = 0; rank < 4; ++rank) {
    for (const int64_t chunk : chunks_of(share, rank)) all.push_back(chunk);
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(SequenceShare, TakesTheSameRowsOfTokensAndTensors) {
  const SequenceShare share{.rank = 1, .ranks = 2, .head_and_tail = true};
  const std::vector<int64_t> tokens = {0, 1, 2, 3, 4, 5, 6, 7, /*row*/ 10, 11, 12, 13, 14, 15, 16, 17};
  EXPECT_EQ(share_of(tokens, 8, share), (std::vector<int64_t>{2, 3, 4, 5, 12, 13, 14, 15}));
  const Tensor x = random_tensor({8, 3});
  EXPECT_TRUE(share_of(x, 0, share).equal(x.narrow(0, 2, 4)));
}

TEST(Documents, OfAShareEndWithItsChunksAndKnowWhatGoesOn) {
  // Documents: [0, 3), [3, 7), [7, 8); chunks of two tokens; this rank has [2, 4) and [4, 6).
  const std::vector<int64_t> tokens = {1, 1, kEos, 1, 1, 1, kEos, 1};
  const auto documents =
      test::find_documents(tokens, 8, kEos, at::kCPU, {.rank = 1, .ranks = 2, .head_and_tail = true});
  EXPECT_EQ(documents->boundaries, (std::vector<int32_t>{0, 1, 2, 4}));
  EXPECT_EQ(documents->longest, 2);
  ASSERT_EQ(documents->continued.size(), 2U);
  EXPECT_EQ(documents->continued[0].before, 2);
  EXPECT_EQ(documents->continued[0].inside, 1);
  EXPECT_EQ(documents->continued[1].before, 1);
  EXPECT_EQ(documents->continued[1].inside, 2);
}

TEST(VisibleRectangles, SkipLaterChunksAndJoinNeighbours) {
  const SequenceShare share{.rank = 1, .ranks = 4, .head_and_tail = true};  // chunks 1 and 6
  using Rectangles = std::vector<Rectangle>;
  // A lower rank's head is seen by both chunks, its tail by none.
  EXPECT_EQ(visible_rectangles(share, 3, 10, {0, 7}, {}), (Rectangles{{0, 3, 0, 20, 0, 10}}));
  // Both chunks of a higher rank are seen by the tail.
  EXPECT_EQ(visible_rectangles(share, 3, 10, {2, 5}, {}), (Rectangles{{0, 3, 10, 10, 0, 20}}));
  // Everything at once, tails first: one stretch each.
  EXPECT_EQ(visible_rectangles(share, 3, 10, {7, 6, 5, 4, 0, 1, 2, 3}, {}),
            (Rectangles{{0, 3, 0, 10, 40, 10}, {0, 3, 10, 10, 20, 60}}));
  EXPECT_TRUE(visible_rectangles({.rank = 0, .ranks = 4}, 3, 10, {1}, {}).empty());
}

TEST(VisibleRectangles, EveryRankOfHeadAndTailSeesAsManyPairs) {
  for (const int64_t ranks : {2, 5, 8}) {
    for (int64_t rank = 0; rank < ranks; ++rank) {
      int64_t pairs = 0;
      const SequenceShare share{.rank = rank, .ranks = ranks, .head_and_tail = true};
      for (int64_t other = 0; other < ranks; ++other) {
        for (const Rectangle& at : visible_rectangles(share, 1, 4, chunks_of(share, other), {})) {
          pairs += at.queries * at.keys;
        }
      }
      EXPECT_EQ(pairs, 16 * (2 * ranks - 1)) << rank;
    }
  }
}

TEST(VisibleRectangles, AWindowHidesFarKeysAndCutsThroughThoseAtItsEdge) {
  const SequenceShare share{.rank = 2, .ranks = 4};  // tokens 20 to 29
  using Rectangles = std::vector<Rectangle>;
  // The keys 18 and 19, of which query 20 sees both and query 21 one.
  EXPECT_EQ(visible_rectangles(share, 3, 10, {1}, {.window = 3}), (Rectangles{{0, 3, 0, 2, 8, 2, 2}}));
  EXPECT_TRUE(visible_rectangles(share, 3, 10, {0}, {.window = 11}).empty());
  // Query 29 sees key 10 when the window is 20 keys long.
  EXPECT_EQ(visible_rectangles(share, 3, 10, {1}, {.window = 20}), (Rectangles{{0, 3, 0, 10, 0, 10}}));
  EXPECT_EQ(visible_rectangles(share, 3, 10, {0, 1}, {.window = 20}),
            (Rectangles{{0, 3, 0, 9, 1, 9, 19}, {0, 3, 0, 10, 10, 10}}));
  EXPECT_TRUE(visible_rectangles(share, 3, 10, {1}, {.window = 1}).empty());
}

TEST(Documents, AreCutWhereChunksOfTheWholeSequenceStart) {
  // Documents: [0, 3), [3, 7), [7, 12); stretches of three tokens; this rank has [3, 6) and [6, 9); chunks of four.
  const std::vector<int64_t> tokens = {1, 1, kEos, 1, 1, 1, kEos, 1, 1, 1, 1, 1};
  const SequenceShare share{.rank = 1, .ranks = 2, .head_and_tail = true};
  const auto cut = cut_documents(test::find_documents(tokens, 12, kEos, at::kCPU, share), 4, 1, 6, at::kCPU, share);
  EXPECT_EQ(cut->boundaries, (std::vector<int32_t>{0, 1, 3, 4, 5, 6}));
  EXPECT_EQ(cut->longest, 2);
  ASSERT_EQ(cut->continued.size(), 2U);
  EXPECT_EQ(cut->continued[0].before, 0);
  EXPECT_EQ(cut->continued[0].inside, 1);
  EXPECT_EQ(cut->continued[1].before, 2);
  EXPECT_EQ(cut->continued[1].inside, 1);
  EXPECT_EQ(cut_documents(nullptr, 5, 2, 6, at::kCPU)->boundaries, (std::vector<int32_t>{0, 5, 6, 11, 12}));
}

TEST(Attend, ByDefinitionIsTheLibrarysAttention) {
  const std::vector<int64_t> tokens = {1, 1, kEos, 1, 1, 1, /*row*/ 1, kEos, 1, 1, kEos, 1};
  const auto make = [](int64_t count) { return random_tensor({2, 6, count, 8}, at::kDouble); };
  const Tensor q = make(6), k = make(2), v = make(2), grad = make(6);
  const Visible cases[] = {{.causal = true},
                           {.causal = false},
                           {.causal = true, .documents = test::find_documents(tokens, 6, kEos, at::kCPU)},
                           {.causal = true, .window = 2},
                           {.causal = false, .window = 4, .first_query = 3}};
  for (const Visible& visible : cases) {
    const Attended library = attend(q, k, v, visible), defined = attend_by_definition(q, k, v, visible);
    EXPECT_CLOSE(defined.out_BSHV, library.out_BSHV, test::tolerance(at::kDouble));
    EXPECT_CLOSE(defined.log_sum_exp_BHS, library.log_sum_exp_BHS, test::tolerance(at::kDouble));
    const Tensors expected = attend_backward(grad, q, k, v, library, visible);
    const Tensors found = attend_by_definition_backward(grad, q, k, v, defined, visible);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_CLOSE(found[i], expected[i], test::tolerance(at::kDouble));
  }
}

}  // namespace
}  // namespace titanium::ops
