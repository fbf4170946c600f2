#include "tests/gpu/kernels_test.h"
#include "titanium/kernels/adamw.h"
#include "titanium/kernels/stochastic_rounding.h"

namespace titanium::kernels {
namespace {

using test::element_type;
using test::wide;

const double kLimit = 4 * test::tolerance(at::kFloat);  // division and root are approximate

class KernelAdamW : public test::KernelTest {
 protected:
  struct Slot {
    Tensor parameter, gradient, exp_avg, exp_avg_sq;
    int64_t random_first = 0;
    Tensor step = {};  // undefined: that of the arguments
    int64_t random_row = 0, random_gap = 0;
    uint64_t random_key = 0;
    Tensor copy = {};
  };
  Slot slot(int64_t size, Dtype parameter, Dtype gradient, Dtype state, int64_t shift = 0) const {
    Slot slot = {random({size}, parameter, shift), random({size}, gradient, shift), random({size}, state, shift),
                 random({size}, state, shift)};
    slot.exp_avg_sq.square_();
    if (size == 1) {  // a sum of one element that nearly cancels says nothing
      for (const Tensor& x : {slot.parameter, slot.gradient, slot.exp_avg}) x.abs_().clamp_min_(0.5);
    }
    return slot;
  }
  static Slot clone(const Slot& slot) {
    return {slot.parameter.clone(), slot.gradient.clone(), slot.exp_avg.clone(), slot.exp_avg_sq.clone(),
            slot.random_first};
  }
  AdamWArgs arguments() const {
    return {.tensors = nullptr,
            .count = 0,
            .chunks = 0,
            .learning_rate = 3e-2,
            .beta1 = 0.9,
            .beta2 = 0.95,
            .eps = 1e-8,
            .weight_decay = 0.1,
            .decoupled = true,
            .step = 3};
  }
  void update(const std::vector<Slot>& slots, AdamWArgs args) const {
    std::vector<AdamWTensor> entries;
    for (const Slot& s : slots)
      entries.push_back({s.parameter.data_ptr(), s.gradient.data_ptr(), s.exp_avg.data_ptr(), s.exp_avg_sq.data_ptr(),
                         s.parameter.numel(), element_type(s.parameter), element_type(s.gradient),
                         element_type(s.exp_avg), 0, s.step.defined() ? s.step.data_ptr<float>() : nullptr,
                         s.random_key, s.random_first, s.random_row, s.random_gap,
                         s.copy.defined() ? s.copy.data_ptr() : nullptr});
    const auto list = upload(entries);
    args.tensors = list.entries;
    args.count = list.count;
    args.chunks = list.chunks;
    launch(adamw, args);
    synchronize_gpu();
  }
  Tensor scalar(double value) const { return at::full({}, value, at::kFloat).to(gpu_); }
};

struct Expected {
  Tensor parameter, exp_avg, exp_avg_sq;
};
template <typename Slot>
Expected reference(const Slot& slot, const AdamWArgs& args, double lr, double step, double clip) {
  Tensor p = wide(slot.parameter), g = wide(slot.gradient) * clip, m = wide(slot.exp_avg), v = wide(slot.exp_avg_sq);
  if (args.decoupled) {
    p = p * (1 - lr * args.weight_decay);
  } else {
    g = g + args.weight_decay * p;
  }
  m = args.beta1 * m + (1 - args.beta1) * g;
  v = args.beta2 * v + (1 - args.beta2) * g.square();
  const Tensor root = v.sqrt() / std::sqrt(1 - std::pow(args.beta2, step)) + args.eps;
  return {p - lr / (1 - std::pow(args.beta1, step)) * m / root, m, v};
}

TEST_F(KernelAdamW, OneLaunchMatchesTheDefinitionForAllTypesAndSizes) {
  for (const bool decoupled : {true, false}) {
    std::vector<Slot> slots;
    for (const Dtype parameter : {at::kFloat, at::kBFloat16})
      for (const Dtype gradient : {at::kFloat, at::kBFloat16})
        for (const Dtype state : {at::kFloat, at::kBFloat16})
          for (const int64_t size : {1, 0, 13, 16384, 16385, 300007})
            for (const int64_t shift : {0, 1}) slots.push_back(slot(size, parameter, gradient, state, shift));
    std::vector<Slot> before;
    for (const Slot& s : slots) before.push_back(clone(s));
    AdamWArgs args = arguments();
    args.decoupled = decoupled;
    update(slots, args);
    for (size_t i = 0; i < slots.size(); ++i) {
      if (slots[i].parameter.numel() == 0) continue;
      SCOPED_TRACE(testing::Message() << "slot " << i);
      const Expected expected = reference(before[i], args, args.learning_rate, 3, 1);
      EXPECT_ROUNDED(slots[i].parameter, expected.parameter, kLimit);
      EXPECT_ROUNDED(slots[i].exp_avg, expected.exp_avg, kLimit);
      EXPECT_ROUNDED(slots[i].exp_avg_sq, expected.exp_avg_sq, kLimit);
      EXPECT_TRUE(at::equal(slots[i].gradient, before[i].gradient));
    }
  }
}

TEST_F(KernelAdamW, ScaleAndStepsComeFromTheDevice) {
  Slot s = slot(10000, at::kFloat, at::kFloat, at::kFloat), other = clone(s);
  const Slot before = clone(s);
  const Tensor clip = scalar(0.25), skip = scalar(0);
  s.step = scalar(7);
  other.step = scalar(1);
  AdamWArgs args = arguments();
  args.clip_scale = clip.data_ptr<float>();
  args.skip = skip.data_ptr<float>();
  update({s, other}, args);
  const Expected expected = reference(before, args, args.learning_rate, 7, 0.25);
  EXPECT_ROUNDED(s.parameter, expected.parameter, kLimit);
  EXPECT_ROUNDED(s.exp_avg_sq, expected.exp_avg_sq, kLimit);
  EXPECT_ROUNDED(other.parameter, reference(before, args, args.learning_rate, 1, 0.25).parameter, kLimit);
}

TEST_F(KernelAdamW, AnFp32ParameterIsAlsoWrittenInBfloat16) {
  for (const int64_t size : {13, 16385}) {
    for (const int64_t shift : {0, 1}) {  // of the copy alone, which then is not aligned
      Slot s = slot(size, at::kFloat, at::kFloat, at::kFloat), alone = clone(s);
      s.copy = random({size}, at::kBFloat16, shift);
      update({s, alone}, arguments());
      EXPECT_TRUE(at::equal(s.copy, s.parameter.to(at::kBFloat16)));
      EXPECT_TRUE(at::equal(s.parameter, alone.parameter));
    }
  }
}

TEST_F(KernelAdamW, ASkippedUpdateChangesNothing) {
  const Slot s = slot(5000, at::kBFloat16, at::kBFloat16, at::kBFloat16), before = clone(s);
  const Tensor skip = scalar(1), clip = scalar(NAN);
  AdamWArgs args = arguments();
  args.skip = skip.data_ptr<float>();
  args.clip_scale = clip.data_ptr<float>();
  update({s}, args);
  EXPECT_TRUE(at::equal(s.parameter, before.parameter));
  EXPECT_TRUE(at::equal(s.exp_avg, before.exp_avg));
  EXPECT_TRUE(at::equal(s.exp_avg_sq, before.exp_avg_sq));
}

TEST_F(KernelAdamW, StochasticRoundingIsRightOnAverageAndDependsOnElementsOnly) {
  // All elements go from 1 to 0.999: between the bfloat16 numbers 0.99609375 and 1.
  constexpr int64_t kSize = 1 << 20;
  AdamWArgs args = arguments();
  args.weight_decay = args.beta1 = args.beta2 = 0;
  args.learning_rate = 1e-3;
  args.step = 1;
  args.stochastic_rounding = true;
  const auto fresh = [&](int64_t size, int64_t first, int64_t shift, int64_t row = 0, int64_t gap = 0) {
    Slot s = slot(size, at::kBFloat16, at::kBFloat16, at::kFloat, shift);
    s.parameter.fill_(1);
    s.gradient.fill_(1);
    s.exp_avg.zero_();
    s.exp_avg_sq.zero_();
    s.random_first = first;
    s.random_row = row;
    s.random_gap = gap;
    s.random_key = 77;
    return s;
  };
  const Slot whole = fresh(kSize, 0, 0), again = fresh(kSize, 0, 0), part = fresh(30001, 1003, 1),
             aligned = fresh(4096, 8192, 0);
  // Columns of a matrix with 64 of them: wide steps, and one by one. Both have several chunks, none of whole rows.
  const Slot wide_columns = fresh(2001 * 24, 128 + 8, 0, 24, 40), odd_columns = fresh(2001 * 25, 128 + 3, 0, 25, 39);
  update({whole, part, aligned, wide_columns, odd_columns}, args);
  update({again}, args);
  const Tensor values = wide(whole.parameter);
  EXPECT_TRUE(((values == 1).logical_or(values == 0.99609375)).all().item<bool>());
  EXPECT_NEAR(values.mean().item<double>(), 0.999, 4 * 0.00390625 * 0.5 / std::sqrt(kSize) + 1e-7);
  EXPECT_TRUE(at::equal(again.parameter, whole.parameter));
  EXPECT_TRUE(at::equal(part.parameter, whole.parameter.narrow(0, 1003, 30001)));
  EXPECT_TRUE(at::equal(aligned.parameter, whole.parameter.narrow(0, 8192, 4096)));
  const Tensor rows = whole.parameter.narrow(0, 128, 2001 * 64).view({2001, 64});
  EXPECT_TRUE(at::equal(wide_columns.parameter.view({2001, 24}), rows.narrow(1, 8, 24)));
  EXPECT_TRUE(at::equal(odd_columns.parameter.view({2001, 25}), rows.narrow(1, 3, 25)));
  Slot other = fresh(kSize, 0, 0), later = fresh(kSize, 0, 0);
  other.random_key = 79;
  later.step = scalar(3);  // the third update with key 77 has the bits of the first with key 79
  update({other, later}, args);
  EXPECT_FALSE(at::equal(other.parameter, whole.parameter));
  EXPECT_TRUE(at::equal(later.parameter, other.parameter));
}

}  // namespace
}  // namespace titanium::kernels
