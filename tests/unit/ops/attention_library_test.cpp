#include "titanium/ops/attention/attention_library.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <functional>

namespace titanium::ops {
namespace {

constexpr int64_t kCudnnVersion = 91900;
using enum AttentionLibrary;

AttentionCase on(int compute_capability, int64_t head_dim = 128, Dtype dtype = at::kBFloat16) {
  return {.compute_capability = compute_capability,
          .cudnn_version = kCudnnVersion,
          .dtype = dtype,
          .head_dim = head_dim,
          .value_dim = head_dim};
}

std::string line(const AttentionCase& asked) { return describe(asked, choose_attention(asked)); }

TEST(AttentionLibrary, FollowsFromGpuDtypeAndHeadDim) {
  struct Row {
    AttentionCase asked;
    AttentionLibrary dense, in_documents;
  };
  const std::vector<Row> rows = {
      {on(0), kCpu, kCpu},
      {on(0, 7, at::kFloat), kCpu, kCpu},
      {on(70), kDefinition, kDefinition},   // V100
      {on(75), kDefinition, kDefinition},   // T4
      {on(80), kCudnn, kFlash},             // A100
      {on(86), kCudnn, kFlash},             // A10
      {on(89), kCudnn, kFlash},             // L40
      {on(90), kCudnn, kFlash},             // H100, H200
      {on(100), kCudnn, kFlash},            // B200
      {on(120), kCudnn, kFlash},            // RTX 50
      {on(121), kCudnn, kFlash},            // GB10
      {on(130), kDefinition, kDefinition},  // not known to libtorch 2.11
      {on(90, 128, at::kHalf), kCudnn, kFlash},
      {on(90, 128, at::kFloat), kDefinition, kDefinition},
      {on(90, 128, at::kDouble), kDefinition, kDefinition},
      {on(90, 8), kCudnn, kFlash},
      {on(90, 64), kCudnn, kFlash},
      {on(90, 100), kDefinition, kDefinition},
      {on(90, 136), kFlash, kFlash},
      {on(90, 192), kFlash, kFlash},
      {on(90, 200), kFlash, kFlash},
      {on(90, 256), kFlash, kFlash},
      {on(90, 264), kDefinition, kDefinition},
      {on(86, 192), kFlash, kFlash},
      {on(86, 200), kDefinition, kDefinition},
      {on(89, 224), kDefinition, kDefinition},
      {on(120, 208), kDefinition, kDefinition},
      {on(120, 256), kFlash, kFlash},
  };
  for (Row row : rows) {
    SCOPED_TRACE(testing::Message() << line(row.asked) << " on " << row.asked.compute_capability);
    EXPECT_EQ(choose_attention(row.asked).library, row.dense);
    AttentionCase varying = row.asked;
    varying.sizes_vary = true;
    EXPECT_EQ(choose_attention(varying).library, row.in_documents);
    row.asked.documents = true;
    EXPECT_EQ(choose_attention(row.asked).library, row.in_documents);
  }
}

TEST(AttentionLibrary, FlashTakesOverWhereCudnnIsMissingOldUnwantedOrNotReproducible) {
  const auto with = [](const std::function<void(AttentionCase&)>& change) {
    AttentionCase asked = on(90);
    change(asked);
    EXPECT_EQ(choose_attention(asked).library, kFlash);
    return line(asked);
  };
  EXPECT_EQ(with([](AttentionCase& c) { c.cudnn_version = 0; }),
            "FlashAttention (bfloat16, head dim 128), because there is no cuDNN");
  EXPECT_EQ(with([](AttentionCase& c) { c.cudnn_version = 80907; }),
            "FlashAttention (bfloat16, head dim 128), because cuDNN 8.9 is older than 9.0");
  EXPECT_EQ(with([](AttentionCase& c) { c.avoid_cudnn = true; }),
            "FlashAttention (bfloat16, head dim 128), because TORCH_CUDNN_SDPA_DEPRIORITIZED is set");
  EXPECT_EQ(with([](AttentionCase& c) { c.deterministic = true; }),
            "FlashAttention (bfloat16, head dim 128), because cuDNN's backward is not deterministic");
  EXPECT_EQ(with([](AttentionCase& c) { c.head_dim = c.value_dim = 192; }),
            "FlashAttention (bfloat16, head dim 192), because cuDNN takes head dims up to 128");
}

AttentionCase latent(int compute_capability) {
  AttentionCase asked = on(compute_capability, 192);
  asked.value_dim = 128;
  return asked;
}

TEST(AttentionLibrary, UnequalDimsGoToCudnnWhereItHasThem) {
  EXPECT_EQ(line(latent(90)), "cuDNN 9.19 (bfloat16, head dims 192 and 128)");
  EXPECT_EQ(choose_attention(latent(100)).library, kCudnn);
  EXPECT_EQ(line(latent(80)),
            "FlashAttention (bfloat16, head dims 192 and 128), because cuDNN takes head dims 192 and 128 on compute "
            "capability 9.0 to 10.9, and the GPU has 8.0");
  AttentionCase old = latent(90);
  old.cudnn_version = 91200;
  EXPECT_EQ(line(old),
            "FlashAttention (bfloat16, head dims 192 and 128), because cuDNN 9.12 is older than 9.13, which takes head "
            "dims 192 and 128");
  AttentionCase deterministic = latent(90);
  deterministic.deterministic = true;
  EXPECT_EQ(line(deterministic),
            "FlashAttention (bfloat16, head dims 192 and 128), because cuDNN's backward is not deterministic");
  AttentionCase small = on(80, 48);
  small.value_dim = 32;
  EXPECT_EQ(choose_attention(small).library, kCudnn);
  small.value_dim = 36;
  EXPECT_EQ(choose_attention(small).library, kDefinition);
  AttentionCase reversed = on(90, 128);
  reversed.value_dim = 192;
  EXPECT_EQ(choose_attention(reversed).library, kFlash);
  reversed.value_dim = 264;
  EXPECT_EQ(choose_attention(reversed).library, kDefinition);
}

TEST(AttentionLibrary, WindowsGoToFlash) {
  AttentionCase asked = on(90, 64);
  asked.window = true;
  EXPECT_EQ(line(asked), "FlashAttention (bfloat16, head dim 64, windows)");
  asked.documents = true;
  EXPECT_EQ(line(asked), "FlashAttention (bfloat16, head dim 64, inside documents, windows)");
  asked.dtype = at::kFloat;
  EXPECT_EQ(choose_attention(asked).library, kDefinition);
}

TEST(AttentionLibrary, TheLineSaysWhatAndWhy) {
  EXPECT_EQ(line(on(90)), "cuDNN 9.19 (bfloat16, head dim 128)");
  AttentionCase documents = on(90, 64, at::kHalf);
  documents.documents = true;
  EXPECT_EQ(line(documents), "FlashAttention (float16, head dim 64, inside documents)");
  AttentionCase varying = on(80);
  varying.sizes_vary = true;
  EXPECT_EQ(line(varying), "FlashAttention (bfloat16, head dim 128, sizes vary)");
  EXPECT_EQ(line(on(90, 128, at::kFloat)),
            "by definition (float32, head dim 128), because cuDNN and FlashAttention compute in 16 bits");
  EXPECT_EQ(line(on(75)),
            "by definition (bfloat16, head dim 128), because cuDNN and FlashAttention need compute capability 8.0 to "
            "12.1, and the GPU has 7.5");
  EXPECT_EQ(line(on(90, 100)),
            "by definition (bfloat16, head dim 100), because cuDNN and FlashAttention need head dims that are "
            "multiples of 8");
  EXPECT_EQ(line(on(86, 208)),
            "by definition (bfloat16, head dim 208), because cuDNN takes head dims up to 128 and FlashAttention has no "
            "backward for head dims from 193 to 224 on compute capability 8.6");
}

TEST(AttentionLibrary, OnTheCpuThereIsNothingToChoose) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const Tensor x = at::zeros({1, 4, 2, 8}, dtype);
    EXPECT_EQ(attention_library(x, x, {.window = 3, .sizes_vary = true}), kCpu);
  }
}

}  // namespace
}  // namespace titanium::ops
