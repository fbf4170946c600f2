#include "titanium/kernels/attention_sinks.h"
#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/vector.cuh"

namespace titanium::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 8;  // per multiprocessor

// A thread has one word of the row of a head; the threads of a row are neighbours in a warp.
struct Place {
  __device__ Place(const HeadRows& rows, int words) {
    const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    row = i / words;
    word = static_cast<int>(i - row * words);
    const int64_t token_row = quotient(row, rows.heads);
    head = row - token_row * rows.heads;
    const int64_t batch = quotient(token_row, rows.tokens);
    sum = (batch * rows.heads + head) * rows.tokens + token_row - batch * rows.tokens;
    is_inside = row < rows.batch * rows.tokens * rows.heads;
  }
  int64_t row, head;
  int64_t sum;  // the place in log_sum_exp
  int word;
  bool is_inside;
};

template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) add_kernel(AddSinksArgs args) {
  constexpr int N = kVectorSize<T>;
  const Place at(args.rows, static_cast<int>(args.rows.head_dim / N));
  if (!at.is_inside) return;
  const float lse = args.log_sum_exp[at.sum], sink = args.sinks[at.head];
  T* out = static_cast<T*>(args.out) + at.row * args.rows.head_dim + at.word * N;
  float values[N];
  to_float(load<T, N>(out), values);
  const float share = 1.0F / (1.0F + expf(sink - lse));
  for (int j = 0; j < N; ++j) values[j] *= share;
  store_floats<T, N>(out, values);
  if (at.word == 0) args.with_sinks[at.sum] = fmaxf(lse, sink) + log1pf(expf(-fabsf(lse - sink)));
}

template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) products_kernel(SinkProductsArgs args) {
  constexpr int N = kVectorSize<T>;
  const int words = static_cast<int>(args.rows.head_dim / N);
  const Place at(args.rows, words);
  float product = 0;
  if (at.is_inside) {
    const int64_t offset = at.row * args.rows.head_dim + at.word * N;
    float grad[N], out[N];
    to_float(load<T, N>(static_cast<const T*>(args.grad) + offset), grad);
    to_float(load<T, N>(static_cast<const T*>(args.out) + offset), out);
    for (int j = 0; j < N; ++j) product += grad[j] * out[j];
  }
  for (int apart = words / 2; apart > 0; apart /= 2) product += __shfl_xor_sync(0xFFFFFFFFU, product, apart);
  if (!at.is_inside || at.word != 0) return;
  args.products[at.sum] = -expf(args.sinks[at.head] - args.log_sum_exp[at.sum]) * product;
}

template <typename Args>
void launch_rows(void (*kernel)(Args), int64_t words, GpuStream stream, const Args& args) {
  const int64_t threads = args.rows.batch * args.rows.tokens * args.rows.heads * words;
  launch(kernel, ceil_div(threads, kThreads), kThreads, 0, stream, args);
}

}  // namespace

void add_sinks(const AddSinksArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    launch_rows(add_kernel<T>, args.rows.head_dim / kVectorSize<T>, stream, args);
  });
}

void sink_products(const SinkProductsArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    launch_rows(products_kernel<T>, args.rows.head_dim / kVectorSize<T>, stream, args);
  });
}

}  // namespace titanium::kernels
