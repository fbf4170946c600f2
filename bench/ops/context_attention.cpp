// Attention over a shared sequence against attention over the whole, on one device: all ranks one after the other,
// forward and backward, with the head sizes of Llama 3 8B. Nothing is exchanged: what is measured is what cutting the
// computation into parts costs. Prints the speed of the parts as a fraction of the whole's; the mark is 90 % on a GPU.
//
//   bench_context_attention [tokens ...]      without a GPU: in fp32 on the CPU, with smaller sizes
#include "titanium/ops/attention/context_attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "titanium/ops/attention/attention.h"
#include "titanium/ops/attention/key_value_bundle.h"
#include "titanium/tensor/gpu_backend.h"

namespace titanium::ops {
namespace {

constexpr int64_t kRanks = 8, kHeads = 32, kKvHeads = 8, kHeadDim = 128;

// Parts that are all here already.
class PartsHere : public KeyValueParts {
 public:
  PartsHere(const std::vector<KeyValuePart>& parts, const Tensor& no_grads) : parts_(parts), no_grads_(no_grads) {}
  std::optional<KeyValuePart> next() override {
    if (next_ == parts_.size()) return std::nullopt;
    return parts_[next_++];
  }
  void give_back(const Tensor&) override {}
  Tensor collect() override { return no_grads_; }

 private:
  const std::vector<KeyValuePart>& parts_;
  Tensor no_grads_;
  size_t next_ = 0;
};

class ExchangeHere : public ContextExchange {
 public:
  ExchangeHere(SequenceShare share, const std::vector<KeyValuePart>& parts, Tensor no_grads)
      : share_(share), parts_(parts), no_grads_(std::move(no_grads)) {}
  const SequenceShare& share() const override { return share_; }
  std::unique_ptr<KeyValueParts> bring(const Tensor&, std::optional<Dtype>) override {
    return std::make_unique<PartsHere>(parts_, no_grads_);
  }

 private:
  SequenceShare share_;
  const std::vector<KeyValuePart>& parts_;
  Tensor no_grads_;
};

struct Inputs {
  Tensor q, k, v, grad;
};

Inputs random_inputs(int64_t tokens, const at::TensorOptions& options) {
  const auto make = [&](int64_t heads) { return at::randn({1, tokens, heads, kHeadDim}, options); };
  return {make(kHeads), make(kKvHeads), make(kKvHeads), make(kHeads)};
}

SequenceShare share_of_rank(int64_t rank) { return {.rank = rank, .ranks = kRanks, .head_and_tail = true}; }

Tensor packed(const Inputs& inputs) { return at::cat({inputs.k.flatten(2), inputs.v.flatten(2)}, 2); }

std::vector<KeyValuePart> bundles(const Inputs& inputs, int64_t rank, int64_t width) {
  std::vector<KeyValuePart> parts;
  for (int64_t step = 0; step < kRanks / width; ++step) {
    const std::vector<int64_t> ranks = ranks_of_bundle(share_of_rank(rank), width, step);
    std::vector<Tensor> rows;
    for (const int64_t other : ranks) rows.push_back(share_of(packed(inputs), 1, share_of_rank(other)));
    parts.push_back(make_bundle(share_of_rank(rank), ranks, rows));
  }
  return parts;
}

template <typename Attention>
void forward_backward(const Inputs& inputs, const Attention& attention) {
  const auto leaf = [](const Tensor& x) { return x.detach().requires_grad_(true); };
  attention(leaf(inputs.q), leaf(inputs.k), leaf(inputs.v)).backward(inputs.grad);
}

template <typename F>
double seconds(Device device, const F& f) {
  constexpr int kRepeats = 5;
  f();  // prepares
  if (device.is_cuda()) synchronize_gpu();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kRepeats; ++i) f();
  if (device.is_cuda()) synchronize_gpu();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kRepeats;
}

double seconds_of_all_ranks(Device device, const Inputs& inputs, int64_t width) {
  std::vector<Inputs> shares;
  std::vector<std::vector<KeyValuePart>> parts;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    parts.push_back(bundles(inputs, rank, width));
    const auto mine = [&](const Tensor& x) { return share_of(x, 1, share_of_rank(rank)); };
    shares.push_back({mine(inputs.q), mine(inputs.k), mine(inputs.v), mine(inputs.grad)});
  }
  const Tensor no_grads = at::zeros(packed(shares[0]).sizes(), inputs.q.options().dtype(at::kFloat));
  return seconds(device, [&] {
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      ExchangeHere exchange(share_of_rank(rank), parts[rank], no_grads);
      forward_backward(shares[rank], [&](const Tensor& q, const Tensor& k, const Tensor& v) {
        return context_attention(q, k, v, {}, exchange);
      });
    }
  });
}

void measure(int64_t tokens, Device device) {
  const Inputs inputs =
      random_inputs(tokens, at::TensorOptions(device.is_cuda() ? at::kBFloat16 : at::kFloat).device(device));
  const double whole = seconds(device, [&] {
    forward_backward(inputs, [](const Tensor& q, const Tensor& k, const Tensor& v) { return attention(q, k, v); });
  });
  std::printf("%8ld tokens: whole %9.2f ms", tokens, 1e3 * whole);
  for (const bool ring : {false, true}) {
    const double shared = seconds_of_all_ranks(device, inputs, ring ? bundle_width(kRanks, tokens / kRanks) : kRanks);
    std::printf(", %s %9.2f ms (%.1f %%)", ring ? "alltoall" : "allgather", 1e3 * shared, 100 * whole / shared);
  }
  std::printf("\n");
}

}  // namespace
}  // namespace titanium::ops

int main(int argc, char** argv) {
  using namespace titanium;
  const Device device = gpu_device_count() > 0 ? Device(at::kCUDA, 0) : Device(at::kCPU);
  std::vector<int64_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atoll(argv[i]));
  if (sizes.empty()) sizes = device.is_cuda() ? std::vector<int64_t>{32768, 131072} : std::vector<int64_t>{512, 1024};
  std::printf("8 parts one after the other, %ld query and %ld key/value heads of %ld, forward and backward, on %s\n",
              ops::kHeads, ops::kKvHeads, ops::kHeadDim, device.str().c_str());
  for (const int64_t tokens : sizes) {
    if (tokens <= 0 || tokens % (2 * ops::kRanks) != 0) {
      std::fprintf(stderr, "%ld tokens cannot be cut into %ld chunks\n", tokens, 2 * ops::kRanks);
      return 2;
    }
    ops::measure(tokens, device);
  }
  return 0;
}
