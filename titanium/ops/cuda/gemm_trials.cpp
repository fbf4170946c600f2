#include "titanium/ops/cuda/gemm_trials.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cmath>

#include "titanium/base/error.h"

namespace titanium::ops {
namespace {

constexpr double kShortestUs = 20;  // below, loops would measure the host; and such products burn little
constexpr int kRounds = 2;

// The clock settles first: it finds what the power allows.
struct LoopLength {
  double settling_us, measured_us;
};
constexpr LoopLength kShort = {40e3, 50e3}, kLong = {60e3, 150e3};

// Normal numbers, which cost the power of real ones.
Tensor make_matrix(const MatrixStorage& storage, int64_t rows, int64_t columns, int64_t alignment) {
  const auto element = static_cast<int64_t>(c10::elementSize(storage.dtype));
  const int64_t shift = alignment == kBestAlignment ? 0 : std::max<int64_t>(1, alignment / element);
  const int64_t size = storage.stride * (storage.columns ? columns : rows);
  const Tensor buffer = at::empty({shift + size}, at::TensorOptions(storage.dtype).device(at::kCUDA));
  if (element == 1) {
    buffer.copy_(at::randn(buffer.sizes(), buffer.options().dtype(at::kBFloat16)));
  } else {
    buffer.normal_();
  }
  const int64_t by_row = storage.columns ? 1 : storage.stride, by_column = storage.columns ? storage.stride : 1;
  return buffer.as_strided({rows, columns}, {by_row, by_column}, shift);
}

// A call of the product. What the training run had allocated, or the product before this one, is given back first.
GemmArgs make_args(const GemmProduct& product) {
  c10::cuda::CUDACachingAllocator::emptyCache();
  const auto matrix = [&](const MatrixStorage& storage, int64_t rows, int64_t columns) {
    return make_matrix(storage, rows, columns, product.alignment);
  };
  const auto scales = [&](int64_t lines) {
    const int64_t count = product.scaling == GemmScaling::kByLine ? lines : 1;
    return at::ones({count, 1}, at::TensorOptions(at::kFloat).device(at::kCUDA));
  };
  GemmArgs args{.out_MN = matrix(product.out, product.m, product.n),
                .a_MK = matrix(product.a, product.m, product.k),
                .b_KN = matrix(product.b, product.k, product.n),
                .fast_accumulation = product.fast_accumulation};
  // Gradients of weights are summed in place.
  if (product.adds) {
    args.added_MN = product.added == product.out ? args.out_MN : matrix(product.added, product.m, product.n);
  }
  if (product.scaling != GemmScaling::kNone) {
    args.a_scale = scales(product.m);
    args.b_scale = scales(product.n);
  }
  if (product.with_bias) args.bias_N = at::randn({product.n}, args.out_MN.options());
  TI_ASSERT(product_of(args) == product, "operands of another product");
  return args;
}

// One product's candidates in loops.
class Loops {
 public:
  Loops(const GemmPlan& plan, const GemmProduct& product) : plan_(plan), args_(make_args(product)) {}

  // At the clock of the moment.
  double probe_us(size_t candidate) const {
    run(candidate, 1);  // loads the kernel
    return time_us(candidate, 5);
  }

  // `about_us`: what a call takes, for the number of calls.
  double sustained_us(size_t candidate, double about_us, const LoopLength& length) const {
    run(candidate, calls_within(length.settling_us, about_us));
    return time_us(candidate, calls_within(length.measured_us, about_us));
  }

 private:
  static int64_t calls_within(double us, double us_of_one) {
    return std::max<int64_t>(1, std::llround(us / us_of_one));
  }

  void run(size_t candidate, int64_t calls) const {
    for (int64_t i = 0; i < calls; ++i) plan_.run(args_, candidate);
  }

  double time_us(size_t candidate, int64_t calls) const {
    const Event begin, end;
    begin.record();
    run(candidate, calls);
    end.record();
    end.wait();
    return end.us_since(begin) / static_cast<double>(calls);
  }

  const GemmPlan& plan_;
  GemmArgs args_;
};

// Of all candidates in short loops; nothing if the product is too short for loops.
std::vector<double> short_loops(const Loops& loops, size_t candidates) {
  std::vector<double> us;
  for (size_t candidate = 0; candidate < candidates; ++candidate) {
    const double about_us = loops.probe_us(candidate);
    if (about_us < kShortestUs) return {};
    us.push_back(loops.sustained_us(candidate, about_us, kShort));
  }
  return us;
}

// Mean times, in the order of `candidates`. The rounds go there and back, so that what changes steadily, such as the
// GPU's temperature, is shared alike.
std::vector<double> long_loops(const Loops& loops, const std::vector<size_t>& candidates,
                               const std::vector<double>& short_us) {
  const size_t count = candidates.size();
  std::vector<double> means(count);
  for (int round = 0; round < kRounds; ++round) {
    for (size_t turn = 0; turn < count; ++turn) {
      const size_t i = round % 2 == 0 ? turn : count - 1 - turn;
      means[i] += loops.sustained_us(candidates[i], short_us[candidates[i]], kLong) / kRounds;
    }
  }
  return means;
}

}  // namespace

Event::Event() { C10_CUDA_CHECK(cudaEventCreate(&event_)); }

Event::~Event() { static_cast<void>(cudaEventDestroy(event_)); }

void Event::record() const { C10_CUDA_CHECK(cudaEventRecord(event_, c10::cuda::getCurrentCUDAStream())); }

void Event::wait() const { C10_CUDA_CHECK(cudaEventSynchronize(event_)); }

double Event::us_since(const Event& begin) const {
  float milliseconds = 0;
  C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin.event_, event_));
  return milliseconds * 1e3;
}

void StepTrials::run_next(const GemmPlan& plan, const GemmArgs& args) {
  const size_t count = plan.candidates(), turn = samples_.size();
  Sample& sample = samples_.emplace_back();
  sample.candidate = (turn + turn / count) % count;  // so that calls at the same place of a step differ
  sample.begin.record();
  plan.run(args, sample.candidate);
  sample.end.record();
}

std::vector<StepTime> StepTrials::times(size_t candidates) const {
  std::vector<std::vector<double>> us(candidates);
  // The GPU gets warm meanwhile, if there are that many.
  const size_t first = samples_.size() < 4 * candidates ? 0 : samples_.size() / 4;
  for (size_t i = first; i < samples_.size(); ++i) {
    us[samples_[i].candidate].push_back(samples_[i].end.us_since(samples_[i].begin));
  }
  std::vector<StepTime> times;
  for (auto& of_candidate : us) times.push_back(step_time(std::move(of_candidate)));
  return times;
}

GemmTrial choose_by_steps(GemmPlan& plan, int64_t calls, const std::vector<StepTime>& times) {
  const size_t best = fastest_candidate(times);
  plan.choose(best);
  return {.product = plan.name(),
          .candidates = static_cast<int64_t>(times.size()),
          .first_us = times[0].median_us,
          .best_us = times[best].median_us,
          .calls = calls};
}

std::optional<SustainedTimes> choose_by_loops(GemmPlan& plan, const GemmProduct& product,
                                              const std::vector<StepTime>& times) {
  if (times.size() == 1) return std::nullopt;
  const Loops loops(plan, product);
  const std::vector<double> short_us = short_loops(loops, times.size());
  if (short_us.empty()) return std::nullopt;
  const size_t fastest_in_steps = fastest_candidate(times);
  const std::vector<size_t> candidates = finalists(short_us, fastest_in_steps);
  const std::vector<double> us = long_loops(loops, candidates, short_us);
  const auto best = static_cast<size_t>(std::ranges::min_element(us) - us.begin());
  plan.choose(candidates[best]);
  const auto of_fastest = std::ranges::find(candidates, fastest_in_steps) - candidates.begin();
  return SustainedTimes{
      .first_us = us[0], .fastest_in_steps_us = us[static_cast<size_t>(of_fastest)], .best_us = us[best]};
}

}  // namespace titanium::ops
