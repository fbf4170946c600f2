#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/stack.h>

#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/cross_entropy.h"

namespace titanium::kernels {
namespace {

using test::element_type;
using test::wide;

constexpr double kScale = 1.0 / 128;
const double kLimit = 4 * test::tolerance(at::kFloat);

struct Case {
  int64_t rows, vocabulary;
  int64_t padding = 0;  // columns after the vocabulary that must not be touched
};
// Short rows and long ones, more rows than blocks, rows that do not fit into shared memory, and odd sizes.
const std::vector<Case> kCases = {{9, 2},      {3, 5},          {700, 2000},   {600, 2048, 8}, {9, 30001},
                                  {11, 32000}, {5, 24576},      {5, 12288},    {300, 32768},   {140, 128256},
                                  {2, 128257}, {3, 151936, 64}, {140, 151936}, {5, 202048},    {4, 24577, 7}};

class KernelCrossEntropy : public test::KernelTest {
 protected:
  // The logits are a view into a wider buffer.
  struct Inputs {
    Tensor buffer, logits, labels;
  };
  Inputs inputs(const Case& size, Dtype dtype) const {
    const Tensor buffer = random({size.rows, size.vocabulary + size.padding}, dtype).mul_(6);
    const Tensor labels = at::randint(size.vocabulary, {size.rows}, at::kLong);
    for (int64_t t = 2; t < size.rows; t += 5) labels.narrow(0, t, 1).fill_(kIgnoredLabel);
    labels.narrow(0, 0, 1).fill_(size.vocabulary - 1);
    return {buffer, buffer.narrow(1, 0, size.vocabulary), labels.to(gpu_)};
  }
  void losses_and_gradient(const Inputs& in, const Tensor& row_losses, bool write_gradient) const {
    launch(cross_entropy, CrossEntropyArgs{element_type(in.logits), in.logits.data_ptr(), in.logits.stride(0),
                                           in.labels.data_ptr<int64_t>(), row_losses.data_ptr<float>(), write_gradient,
                                           static_cast<float>(kScale), in.logits.size(0), in.logits.size(1)});
  }
};

struct Reference {
  Tensor row_losses, gradient;
};
Reference reference(const Tensor& logits, const Tensor& labels) {
  const Tensor log_probabilities = at::_log_softmax(wide(logits), 1, false);
  const Tensor valid = (labels.cpu() != kIgnoredLabel).to(at::kDouble);
  const Tensor targets = labels.cpu().clamp_min(0).unsqueeze(1);
  Tensor gradient = log_probabilities.exp();
  gradient.scatter_(1, targets, gradient.gather(1, targets) - 1);
  return {-log_probabilities.gather(1, targets).squeeze(1) * valid, gradient * valid.unsqueeze(1) * kScale};
}

TEST_F(KernelCrossEntropy, LossesAndGradientMatchTheDefinitionOnAllSizes) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Case& size : kCases) {
      SCOPED_TRACE(testing::Message() << dtype << ", " << size.rows << " x " << size.vocabulary);
      const Inputs in = inputs(size, dtype);
      const Reference expected = reference(in.logits, in.labels);
      const Tensor before = in.buffer.clone(), row_losses = empty({size.rows}, at::kFloat);
      losses_and_gradient(in, row_losses, false);
      EXPECT_TRUE(at::equal(in.buffer, before));
      EXPECT_ROUNDED(row_losses, expected.row_losses, kLimit);
      const Tensor with_gradient = empty({size.rows}, at::kFloat), again = empty({size.rows}, at::kFloat);
      losses_and_gradient(in, with_gradient, true);
      EXPECT_ROUNDED(with_gradient, expected.row_losses, kLimit);
      const Tensor gradient = in.buffer.clone();
      in.buffer.copy_(before);
      losses_and_gradient(in, again, true);
      EXPECT_TRUE(at::equal(again, with_gradient));
      EXPECT_TRUE(at::equal(in.buffer, gradient));
      EXPECT_ROUNDED(in.logits, expected.gradient, kLimit);
      EXPECT_TRUE(at::equal(in.buffer.narrow(1, size.vocabulary, size.padding),
                            before.narrow(1, size.vocabulary, size.padding)));
    }
  }
}

TEST_F(KernelCrossEntropy, TheOnlyColumnIsCertain) {
  const Inputs in = inputs({7, 1}, at::kBFloat16);
  const Tensor row_losses = empty({7}, at::kFloat);
  losses_and_gradient(in, row_losses, true);
  EXPECT_LE(row_losses.abs().max().item<double>(), 1e-6);
  EXPECT_LE(in.logits.abs().max().item<double>(), 1e-6);
}

TEST_F(KernelCrossEntropy, ShardsCombineToTheSameLossesAndGradient) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    for (const Case& size : {Case{300, 2048}, {7, 1003}, {37, 128256}}) {
      SCOPED_TRACE(testing::Message() << dtype << ", " << size.rows << " x " << size.vocabulary);
      const Inputs in = inputs(size, dtype);
      const Reference expected = reference(in.logits, in.labels);
      const int64_t cut = size.vocabulary / 3 / 8 * 8;
      std::vector<Tensor> shards = {in.logits.narrow(1, 0, cut), in.logits.narrow(1, cut, size.vocabulary - cut)};
      std::vector<Tensor> logs;
      Tensor target = at::zeros({size.rows}, at::kDouble);
      for (int i = 0; i < 2; ++i) {
        const Tensor max = empty({size.rows}, at::kFloat), sum = empty({size.rows}, at::kFloat),
                     logit = empty({size.rows}, at::kFloat);
        launch(cross_entropy_statistics,
               CrossEntropyShardArgs{element_type(in.logits), shards[i].data_ptr(), shards[i].stride(0),
                                     in.labels.data_ptr<int64_t>(), i * cut, max.data_ptr<float>(),
                                     sum.data_ptr<float>(), logit.data_ptr<float>(), size.rows, shards[i].size(1)});
        logs.push_back(wide(max) + wide(sum).log());
        target += wide(logit);
      }
      const Tensor log_sum_exp = at::logsumexp(at::stack(logs), {0});
      const Tensor valid = (in.labels.cpu() != kIgnoredLabel).to(at::kDouble);
      EXPECT_ROUNDED(((log_sum_exp - target) * valid).to(at::kFloat), expected.row_losses, kLimit);
      const Tensor on_gpu = log_sum_exp.to(at::kFloat).to(gpu_);
      for (int i = 0; i < 2; ++i) {
        launch(cross_entropy_gradient,
               CrossEntropyGradientArgs{element_type(in.logits), shards[i].data_ptr(), shards[i].stride(0),
                                        in.labels.data_ptr<int64_t>(), i * cut, on_gpu.data_ptr<float>(),
                                        static_cast<float>(kScale), size.rows, shards[i].size(1)});
      }
      EXPECT_ROUNDED(in.logits, expected.gradient, kLimit);
    }
  }
}

TEST_F(KernelCrossEntropy, LossesAddUpInDouble) {
  const Inputs in = inputs({5000, 16}, at::kFloat);
  const Tensor row_losses = empty({5000}, at::kFloat), loss = at::zeros({}, at::kDouble).to(gpu_).add_(3);
  losses_and_gradient(in, row_losses, true);
  launch(sum_losses, SumLossesArgs{row_losses.data_ptr<float>(), 5000, kScale, loss.data_ptr<double>()});
  EXPECT_NEAR(loss.item<double>(), 3 + (wide(row_losses).sum() * kScale).item<double>(), 1e-12 * 5000);
}

TEST_F(KernelCrossEntropy, ALabelOutsideTheVocabularyGivesNoNumber) {
  const Inputs in = inputs({4, 64}, at::kBFloat16);
  in.labels.narrow(0, 1, 1).fill_(64);
  in.labels.narrow(0, 3, 1).fill_(-1);
  const Tensor row_losses = empty({4}, at::kFloat);
  losses_and_gradient(in, row_losses, true);
  const Tensor finite = row_losses.isfinite().cpu();
  EXPECT_TRUE(finite[0].item<bool>());
  EXPECT_FALSE(finite[1].item<bool>());
  EXPECT_TRUE(finite[2].item<bool>());
  EXPECT_FALSE(finite[3].item<bool>());
}

TEST_F(KernelCrossEntropy, MaskedLogitsTakeNoPart) {
  const Inputs in = inputs({6, 4096}, at::kFloat);
  in.logits.narrow(1, 0, 4000).fill_(-INFINITY);
  const Reference expected = reference(in.logits, in.labels.fill_(4050));
  const Tensor row_losses = empty({6}, at::kFloat);
  losses_and_gradient(in, row_losses, true);
  EXPECT_ROUNDED(row_losses, expected.row_losses, kLimit);
  EXPECT_ROUNDED(in.logits, expected.gradient, kLimit);
}

}  // namespace
}  // namespace titanium::kernels
