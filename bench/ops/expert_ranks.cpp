// A layer of experts, forward and backward, on one device: all of it at once, and as N ranks of expert parallelism that
// share the device and hand rows to each other by copies, which stand for the network. What is left between the two
// beside these copies is the cost of the permutations and of groups that are N times smaller. On a GPU the time in
// which it works is told beside that of the clock, with and without the copies: N ranks that share one wait for each
// other's counts while it does nothing, which N GPUs would not.
//
//   bench_expert_ranks [ranks, 8 by default [kernels]]      without a GPU: small sizes on the CPU
//   kernels: how many of those that differ most between the two are listed
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "titanium/ops/experts/mixture_of_experts.h"
#include "titanium/tensor/gpu_backend.h"

namespace titanium::ops {
namespace {

struct Model {
  const char* name;
  int64_t tokens, dim, experts, hidden, top_k, shared;
};
constexpr Model kModels[] = {{"DeepSeek 16B", 16384, 2048, 64, 1408, 6, 2},
                             {"Qwen3 30B-A3B", 16384, 2048, 128, 768, 8, 0}};
constexpr Model kSmall = {"small", 256, 32, 16, 48, 2, 1};

// What the ranks of one process have in common.
struct Meeting {
  explicit Meeting(int ranks) : arrived(ranks), counts(ranks), rows(ranks), plans(ranks) {}
  std::barrier<> arrived;
  std::vector<Tensor> counts, rows;
  std::vector<RowPlan> plans;
};

// Hands tensors over by reference; who receives copies its rows out of them.
class LocalExchange : public ExpertExchange {
 public:
  LocalExchange(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  int64_t ranks() const override { return std::ssize(meeting_.rows); }

  PendingPlan plan(const Tensor& counts_E) override {
    meeting_.counts[rank_] = counts_E;
    meeting_.arrived.arrive_and_wait();
    return [this] {
      RowPlan plan;
      const int64_t here = meeting_.counts[0].size(0) / ranks();
      std::vector<Tensor> from;
      for (const Tensor& counts : meeting_.counts) from.push_back(counts.narrow(0, rank_ * here, here));
      plan.counts_nL = at::stack(from);
      plan.from = to_vector(plan.counts_nL.sum(1));
      plan.to = to_vector(meeting_.counts[rank_].view({ranks(), here}).sum(1));
      plan.received = std::accumulate(plan.from.begin(), plan.from.end(), int64_t{0});
      meeting_.plans[rank_] = plan;
      meeting_.arrived.arrive_and_wait();
      return plan;
    };
  }
  Pending send(const Tensor& rows, const RowPlan&) override { return exchange(rows, &RowPlan::to); }
  Pending send_back(const Tensor& rows, const RowPlan&) override { return exchange(rows, &RowPlan::from); }

 private:
  static std::vector<int64_t> to_vector(const Tensor& x) {
    const Tensor host = x.cpu().to(at::kLong);
    return {host.data_ptr<int64_t>(), host.data_ptr<int64_t>() + host.numel()};
  }
  // `sent` is how many rows a rank gives to each other one.
  Pending exchange(const Tensor& rows, std::vector<int64_t> RowPlan::* sent) {
    meeting_.rows[rank_] = rows;
    meeting_.arrived.arrive_and_wait();
    return [this, sent] {
      std::vector<Tensor> parts;
      for (int64_t from = 0; from < ranks(); ++from) {
        const std::vector<int64_t>& counts = meeting_.plans[from].*sent;
        const int64_t first = std::accumulate(counts.begin(), counts.begin() + rank_, int64_t{0});
        parts.push_back(meeting_.rows[from].narrow(0, first, counts[rank_]));
      }
      const Tensor arrived = at::cat(parts);
      meeting_.arrived.arrive_and_wait();
      return arrived;
    };
  }

  Meeting& meeting_;
  int rank_;
};

// What one rank has of the layer.
class Layer {
 public:
  Layer(const Model& model, int ranks, Device device)
      : model_(model), h_(at::randn({model.tokens / ranks, model.dim}, at::kFloat).to(device, at::kBFloat16)) {
    const int64_t here = model.experts / ranks, shared = model.shared * model.hidden;
    for (const Shape& shape : {Shape{model.dim}, Shape{model.experts, model.dim}, Shape{here, model.hidden, model.dim},
                               Shape{here, model.hidden, model.dim}, Shape{here, model.dim, model.hidden},
                               Shape{shared, model.dim}, Shape{model.dim, shared}, Shape{shared, model.dim}}) {
      Parameter& weight = *weights_.emplace_back(std::make_unique<Parameter>("weight", shape));
      weight.materialize(at::kBFloat16, device);
      weight.value.detach().normal_(0, shape.size() == 1 ? 1 : 0.02);
    }
    h_.requires_grad_(true);
  }

  // The node is called here and not by autograd, whose one thread for a device would wait for itself.
  void run(ExpertExchange& exchange) {
    MixtureOfExpertsArgs args{.norm = *weights_[0],
                              .eps = 1e-5,
                              .gate = *weights_[1],
                              .router = {.scores = ScoreFunction::kSoftmax, .top_k = model_.top_k},
                              .experts = {.hidden = {weights_[2].get(), weights_[3].get()}, .down = weights_[4].get()},
                              .exchange = exchange};
    if (model_.shared > 0) args.shared.emplace(SharedExperts{*weights_[5], *weights_[6], *weights_[7]});
    const Tensor y = mixture_of_experts(h_, args, ExpertSaves::kHidden);
    const c10::AutoGradMode no_grad(false);
    (*y.grad_fn())({y.detach()});
    for (const auto& weight : weights_) weight->grad = Tensor();
  }

 private:
  Model model_;
  Tensor h_;
  std::vector<std::unique_ptr<Parameter>> weights_;
};

constexpr int kWarm = 5, kCalls = 40;

using ByKernel = std::map<std::string, double>;

// Milliseconds of a call: of the clock, and those in which the device runs kernels.
struct Times {
  double clock = 0;
  ByKernel busy = {};

  double all_kernels() const {
    return std::accumulate(busy.begin(), busy.end(), 0.0, [](double sum, const auto& of) { return sum + of.second; });
  }
  // at::cat, which nothing else in the layer calls.
  double handing_over() const {
    return std::accumulate(busy.begin(), busy.end(), 0.0, [](double sum, const auto& of) {
      return of.first.find("CatArray") != std::string::npos ? sum + of.second : sum;
    });
  }
};

double seconds_of(const Model& model, int ranks, Device device) {
  Meeting meeting(ranks);
  std::vector<double> seconds(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Layer layer(model, ranks, device);
      LocalExchange local(meeting, rank);
      ExpertExchange& exchange = ranks == 1 ? all_experts_here() : local;
      std::chrono::steady_clock::time_point begin;
      for (int call = 0; call < kWarm + kCalls; ++call) {
        if (call == kWarm) {
          if (device.is_cuda()) synchronize_gpu();
          meeting.arrived.arrive_and_wait();
          begin = std::chrono::steady_clock::now();
        }
        layer.run(exchange);
      }
      if (device.is_cuda()) synchronize_gpu();
      meeting.arrived.arrive_and_wait();
      seconds[static_cast<size_t>(rank)] =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kCalls;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return seconds[0];
}

// All ranks queue on one stream, so that no two kernels run at a time.
ByKernel busy_milliseconds_of(const Model& model, int ranks, Device device) {
  namespace profiler = torch::autograd::profiler;
  const profiler::ProfilerConfig kineto(profiler::ProfilerState::KINETO);
  const std::set<profiler::ActivityType> kinds = {profiler::ActivityType::CUDA};
  profiler::prepareProfiler(kineto, kinds);
  profiler::enableProfiler(kineto, kinds);
  seconds_of(model, ranks, device);
  const auto trace = profiler::disableProfiler();
  ByKernel busy;
  for (const auto& event : trace->events()) {
    if (event.deviceType() != c10::DeviceType::CUDA) continue;
    busy[event.name()] += static_cast<double>(event.durationNs()) * 1e-6 / (kWarm + kCalls);
  }
  return busy;
}

Times times_of(const Model& model, int ranks, Device device) {
  Times times{.clock = 1e3 * seconds_of(model, ranks, device)};
  if (device.is_cuda()) times.busy = busy_milliseconds_of(model, ranks, device);
  return times;
}

void print_kernels(const Times& whole, const Times& shared, int most) {
  std::vector<std::pair<double, std::string>> more;
  ByKernel all = shared.busy;
  all.insert(whole.busy.begin(), whole.busy.end());
  const auto of = [](const Times& times, const std::string& name) {
    const auto found = times.busy.find(name);
    return found == times.busy.end() ? 0.0 : found->second;
  };
  for (const auto& [name, ms] : all) more.emplace_back(of(shared, name) - of(whole, name), name);
  std::ranges::sort(more, std::ranges::greater());
  for (size_t i = 0; i < more.size() && i < static_cast<size_t>(most); ++i) {
    const std::string& name = more[i].second;
    std::printf("  %8.3f and %8.3f ms  %s\n", of(whole, name), of(shared, name), name.substr(0, 150).c_str());
  }
}

void compare(const Model& model, int ranks, Device device, int kernels) {
  const Times whole = times_of(model, 1, device), shared = times_of(model, ranks, device);
  std::printf("%-16s one rank %8.3f ms, %d ranks %8.3f ms: %.1f %% of its speed", model.name, whole.clock, ranks,
              shared.clock, 100 * whole.clock / shared.clock);
  if (device.is_cuda()) {
    const double alone = whole.all_kernels(), together = shared.all_kernels(), handed = shared.handing_over();
    std::printf("; the GPU works for %.3f and %.3f ms: %.1f %%; %.3f ms of it hand rows over, without them %.1f %%",
                alone, together, 100 * alone / together, handed, 100 * alone / (together - handed));
  }
  std::printf("\n");
  print_kernels(whole, shared, kernels);
}

}  // namespace
}  // namespace titanium::ops

int main(int argc, char** argv) {
  using namespace titanium;
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 8;
  const int kernels = argc > 2 ? std::atoi(argv[2]) : 0;
  const bool cuda = gpu_device_count() > 0;
  if (!cuda) {
    ops::compare(ops::kSmall, ranks, at::kCPU, 0);
    return 0;
  }
  for (const auto& model : ops::kModels) ops::compare(model, ranks, Device(at::kCUDA, 0), kernels);
  return 0;
}
