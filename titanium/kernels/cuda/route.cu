#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/reduce.cuh"
#include "titanium/kernels/route.h"

namespace titanium::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int blocks(int held) { return held > 8 ? 2 : 4; }  // per multiprocessor
constexpr int kWarps = kThreads / 32;
constexpr float kLeastSum = 1e-20F;

// Note [Ordered keys]
// A choice compares unsigned keys, which order as the floats do and of which a warp finds the largest in one
// instruction. Every NaN has the largest key. Two keys are below that of every float. A sum is never -0 here, because
// scores are not, so equal floats have equal keys.
constexpr unsigned kTaken = 0;   // chosen already, or no such expert
constexpr unsigned kMasked = 1;  // of a group that is out
__device__ unsigned key_of(float value) {
  if (isnan(value)) return 0xFFFFFFFFU;
  const unsigned bits = __float_as_uint(value);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000U;
}
__device__ float value_of(unsigned key) {
  return __uint_as_float(key >> 31 != 0 ? key & 0x7FFFFFFFU : ~key);  // NaN of the largest key
}

__device__ int warp_min(int value) { return __reduce_min_sync(kWholeWarp, value); }
__device__ unsigned warp_max(unsigned value) { return __reduce_max_sync(kWholeWarp, value); }

// The warp that treats a token holds kHeld numbers per lane: that of expert i * 32 + lane is number i.
template <int kHeld>
struct Experts {
  __device__ static int expert(int i) { return i * 32 + static_cast<int>(threadIdx.x) % 32; }

  // The expert of the largest key, the lowest if there are several. All lanes get it.
  __device__ static int best(const unsigned (&keys)[kHeld], unsigned& key) {
    unsigned own = keys[0];
#pragma unroll
    for (int i = 1; i < kHeld; ++i) own = max(own, keys[i]);
    key = warp_max(own);
    int first = kHeld * 32;
#pragma unroll
    for (int i = kHeld - 1; i >= 0; --i) first = keys[i] == key ? expert(i) : first;
    return warp_min(first);
  }
  __device__ static void take(unsigned (&keys)[kHeld], int chosen) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) keys[i] = expert(i) == chosen ? kTaken : keys[i];
  }
};

// Masks the experts of all but the best groups.
template <int kHeld>
__device__ void limit_groups(const RouteArgs& args, unsigned (&keys)[kHeld]) {
  using Own = Experts<kHeld>;
  const int groups = static_cast<int>(args.groups), size = static_cast<int>(args.num_experts) / groups;
  unsigned rank[1] = {kTaken};  // of the group with the lane's number
  for (int group = 0; group < groups; ++group) {
    unsigned members[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) members[i] = Own::expert(i) / size == group ? keys[i] : kTaken;
    unsigned first = 0, second = 0;
    Own::take(members, Own::best(members, first));
    Own::best(members, second);
    const float sum = value_of(first) + (size > 1 ? value_of(second) : 0.0F);
    if (Experts<1>::expert(0) == group) rank[0] = key_of(sum);
  }
  unsigned kept = 0;
  for (int i = 0; i < args.limited_groups; ++i) {
    unsigned key = 0;
    const int group = Experts<1>::best(rank, key);
    Experts<1>::take(rank, group);
    kept |= 1U << group;
  }
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const bool stays = keys[i] == kTaken || (kept >> (Own::expert(i) / size) & 1U) != 0;
    keys[i] = stays ? keys[i] : kMasked;
  }
}

// Logits become scores.
template <int kHeld>
__device__ void score(const RouteArgs& args, float (&values)[kHeld]) {
  if (args.function == RouterScores::kSigmoid) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) values[i] = 1.0F / (1.0F + expf(-values[i]));
    return;
  }
  float largest = values[0];
#pragma unroll
  for (int i = 1; i < kHeld; ++i) largest = fmaxf(largest, values[i]);
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, offset));
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    values[i] = expf(values[i] - largest);
    sum += values[i];
  }
  sum = lanes_sum<32>(sum);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) values[i] /= sum;
}

// A warp for each token.
template <int kHeld>
__global__ void __launch_bounds__(kThreads, blocks(kHeld)) route_kernel(RouteArgs args) {
  using Own = Experts<kHeld>;
  __shared__ float rows[kWarps][kHeld * 32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int experts = static_cast<int>(args.num_experts), top_k = static_cast<int>(args.top_k);
  const int64_t token = int64_t{blockIdx.x} * kWarps + warp;
  if (token >= args.tokens) return;
  float values[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i)
    values[i] = Own::expert(i) < experts ? args.logits[token * experts + Own::expert(i)] : -INFINITY;
  score(args, values);
  unsigned keys[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    rows[warp][Own::expert(i)] = values[i];
    const bool exists = Own::expert(i) < experts;
    if (exists) args.scores[token * experts + Own::expert(i)] = values[i];
    const float bias = exists && args.bias != nullptr ? args.bias[Own::expert(i)] : 0.0F;
    keys[i] = exists ? key_of(values[i] + bias) : kTaken;
  }
  __syncwarp();
  if (args.groups > 0 && !args.force_balance) limit_groups(args, keys);
  float sum = 0, weight = 0;
  int expert = 0;  // of the choice with the lane's number
  for (int k = 0; k < top_k; ++k) {
    unsigned key = 0;
    const int chosen = args.force_balance ? static_cast<int>((token * top_k + k) % experts) : Own::best(keys, key);
    Own::take(keys, chosen);
    const float its_score = rows[warp][chosen];
    sum += its_score;
    if (lane == k) expert = chosen, weight = its_score;
  }
  if (lane >= top_k) return;
  if (args.normalise) weight /= sum + kLeastSum;
  args.experts[token * top_k + lane] = expert;
  args.weights[token * top_k + lane] = weight * args.scale;
}

template <int kHeld>
__global__ void __launch_bounds__(kThreads, blocks(kHeld)) backward_kernel(RouteBackwardArgs args) {
  using Own = Experts<kHeld>;
  __shared__ float rows[kWarps][kHeld * 32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int experts = static_cast<int>(args.num_experts), top_k = static_cast<int>(args.top_k);
  const int64_t token = int64_t{blockIdx.x} * kWarps + warp;
  if (token >= args.tokens) return;
  float scores[kHeld], grad[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const bool exists = Own::expert(i) < experts;
    const int64_t at = token * experts + Own::expert(i);
    scores[i] = exists ? args.scores[at] : 0.0F;
    grad[i] = exists && args.grad_scores != nullptr ? args.grad_scores[at] : 0.0F;
    rows[warp][Own::expert(i)] = 0;
  }
  const bool chosen = lane < top_k;
  const int expert = chosen ? args.experts[token * top_k + lane] : 0;
  float share = chosen ? args.grad_weights[token * top_k + lane] * args.scale : 0.0F;
  if (args.normalise) {
    const float its_score = chosen ? args.scores[token * experts + expert] : 0.0F;
    const float sum = lanes_sum<32>(its_score) + kLeastSum;
    share = (share - lanes_sum<32>(share * its_score) / sum) / sum;
  }
  __syncwarp();
  if (chosen) rows[warp][expert] = share;
  __syncwarp();
  float dot = 0;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    grad[i] += rows[warp][Own::expert(i)];
    dot += grad[i] * scores[i];
  }
  if (args.function == RouterScores::kSoftmax) dot = lanes_sum<32>(dot);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (Own::expert(i) >= experts) continue;
    const float slope = args.function == RouterScores::kSoftmax ? grad[i] - dot : grad[i] * (1.0F - scores[i]);
    args.grad_logits[token * experts + Own::expert(i)] = slope * scores[i];
  }
}

// Calls `call` with the count of numbers that a lane holds, as a type.
template <int kHeld>
struct Held {
  static constexpr int kValue = kHeld;
};
template <typename Call>
void with_held(int64_t experts, const Call& call) {
  if (experts <= 32) return call(Held<1>{});
  if (experts <= 64) return call(Held<2>{});
  if (experts <= 128) return call(Held<4>{});
  if (experts <= 256) return call(Held<8>{});
  call(Held<static_cast<int>(kMostExperts / 32)>{});
}

}  // namespace

void route(const RouteArgs& args, GpuStream stream) {
  with_held(args.num_experts, [&](auto held) {
    launch(route_kernel<decltype(held)::kValue>, ceil_div(args.tokens, kWarps), kThreads, 0, stream, args);
  });
}

void route_backward(const RouteBackwardArgs& args, GpuStream stream) {
  with_held(args.num_experts, [&](auto held) {
    launch(backward_kernel<decltype(held)::kValue>, ceil_div(args.tokens, kWarps), kThreads, 0, stream, args);
  });
}

}  // namespace titanium::kernels
