#include "titanium/kernels/cuda/device/ring.cuh"
#include "titanium/kernels/cuda/device/rms_norm.cuh"
#include "titanium/kernels/cuda/device/sum_parts.cuh"

namespace titanium::kernels {
namespace {

using rms::Cut;
using rms::normalised;

// Blocks per multiprocessor. Each writes a part of dweight, so few large blocks are better than many small ones; and
// with more under way than this, the memory is slower.
constexpr int backward_blocks(int threads) { return threads < 512 ? 512 / threads : 1; }
// The largest grid of any kernel that rows of `dim` may take: blocks of 128 threads hold no more than 2048 elements.
constexpr int most_blocks(int64_t dim) { return backward_blocks(dim <= 2048 ? 128 : 256); }
static_assert(rms::kPlainBlocks <= most_blocks(4096));

enum Stream { kDy, kX, kAround, kStreams };

// The words of the rows to come are under way, into a ring of kStages rows.
template <typename T, typename Cut, int kStages>
class RowsAhead {
 public:
  static constexpr int kSlots = kStages * kStreams * Cut::kHeld;

  __device__ RowsAhead(const RmsNormBackwardArgs& args) : args_(args), ring_(dynamic_shared<uint4>()) {}

  // Every call closes a batch, also of rows that do not exist.
  __device__ void ask(int64_t row, int stage) {
    if (row < args_.rows) {
#pragma unroll
      for (int i = 0; i < Cut::kHeld; ++i) {
        const int64_t column = int64_t(threadIdx.x % Cut::kGroup + i * Cut::kGroup) * kVectorSize<T>;
        if (column >= args_.dim) continue;
        const int64_t at = row * args_.dim + column;
        ring_.ask(slot(stage, kDy, i), static_cast<const T*>(args_.dy) + at);
        ring_.ask(slot(stage, kX, i), static_cast<const T*>(args_.x) + at);
        if (args_.residual_grad != nullptr)
          ring_.ask(slot(stage, kAround, i), static_cast<const T*>(args_.residual_grad) + at);
      }
    }
    close_batch();
  }
  __device__ void wait() { wait_for_all_but<kStages - 1>(); }
  __device__ auto read(int stage, Stream stream, int i) const { return ring_.template read<T>(slot(stage, stream, i)); }

 private:
  __device__ static int slot(int stage, Stream stream, int i) { return (stage * kStreams + stream) * Cut::kHeld + i; }

  const RmsNormBackwardArgs& args_;
  Ring<Cut::kThreads> ring_;
};

// dx of one row, and y if it is wanted; adds the row's share to dweight.
template <typename T, typename Cut, typename Rows>
__device__ void finish_row(const RmsNormBackwardArgs& args, int64_t row, Rows& rows, int stage, float rstd,
                           const float (&weight)[Cut::kHeld][kVectorSize<T>],
                           float (&dweight)[Cut::kHeld][kVectorSize<T>], Magnitude<T>& magnitude,
                           BlockSumRoom<float>& room) {
  constexpr int kSize = kVectorSize<T>, kHeld = Cut::kHeld;
  Raw<T, kSize> raw_dy[kHeld] = {}, raw_x[kHeld] = {}, around[kHeld] = {};
  bool here[kHeld];
  float dot = 0;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    here[i] = row < args.rows && int64_t(threadIdx.x % Cut::kGroup + i * Cut::kGroup) * kSize < args.dim;
    if (!here[i]) continue;
    raw_dy[i] = rows.read(stage, kDy, i);
    raw_x[i] = rows.read(stage, kX, i);
    if (args.residual_grad != nullptr) around[i] = rows.read(stage, kAround, i);
    float dy[kSize], x[kSize];
    to_float(raw_dy[i], dy);
    to_float(raw_x[i], x);
    for (int j = 0; j < kSize; ++j) {
      const float share = dy[j] * (x[j] * rstd);
      dweight[i][j] += share;
      dot += share * weight[i][j];
    }
  }
  const float mean = group_sum<Cut::kGroup, Cut::kThreads>(dot, room) / static_cast<float>(args.dim);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (!here[i]) continue;
    const int64_t column = int64_t(threadIdx.x % Cut::kGroup + i * Cut::kGroup) * kSize;
    float dy[kSize], x[kSize], more[kSize];
    to_float(raw_dy[i], dy);
    to_float(raw_x[i], x);
    to_float(around[i], more);
    for (int j = 0; j < kSize; ++j) dy[j] = (dy[j] * weight[i][j] - x[j] * rstd * mean) * rstd + more[j];
    const auto dx = from_float<T, kSize>(dy);
    store<T, kSize>(static_cast<T*>(args.dx) + row * args.dim + column, dx);
    if (args.amax != nullptr) magnitude.add(dx);
    if (args.y == nullptr) continue;
    for (int j = 0; j < kSize; ++j) x[j] = normalised(x[j], rstd, weight[i][j]);
    store_floats<T, kSize>(static_cast<T*>(args.y) + row * args.dim + column, x);
  }
}

// Writes the block's part of dweight to row blockIdx.x of the scratch.
template <typename T, typename Cut>
__device__ void write_part(const RmsNormBackwardArgs& args, const float (&dweight)[Cut::kHeld][kVectorSize<T>]) {
  constexpr int kSize = kVectorSize<T>, kThreads = Cut::kThreads, kGroup = Cut::kGroup, kHeld = Cut::kHeld;
  float* part = args.scratch + int64_t{blockIdx.x} * args.dim;
  const int member = threadIdx.x % kGroup;
  if constexpr (kGroup == kThreads) {
    for (int i = 0; i < kHeld; ++i) {
      const int64_t column = int64_t(member + i * kGroup) * kSize;
      if (column < args.dim) store_floats<float, kSize>(part + column, dweight[i]);
    }
  } else {
    constexpr int kColumns = kGroup * kHeld * kSize;
    __shared__ float of_group[kThreads / kGroup][kColumns];
    for (int i = 0; i < kHeld; ++i) {
      for (int j = 0; j < kSize; ++j) of_group[threadIdx.x / kGroup][(member + i * kGroup) * kSize + j] = dweight[i][j];
    }
    __syncthreads();
    for (int column = threadIdx.x; column < args.dim; column += kThreads) {
      float sum = 0;
      for (int group = 0; group < kThreads / kGroup; ++group) sum += of_group[group][column];
      part[column] = sum;
    }
  }
}

template <typename T, typename Cut, int kStages>
__global__ void __launch_bounds__(Cut::kThreads, backward_blocks(Cut::kThreads))
    backward_kernel(RmsNormBackwardArgs args) {
  __shared__ BlockSumRoom<float> rooms[2];
  let_second_kernel_come();
  RowsAhead<T, Cut, kStages> rows(args);
  const int64_t step = int64_t{gridDim.x} * Cut::kRows;
  int64_t first = int64_t{blockIdx.x} * Cut::kRows;
  const int group = threadIdx.x / Cut::kGroup;
#pragma unroll
  for (int stage = 0; stage < kStages; ++stage) rows.ask(first + group + stage * step, stage);
  float weight[Cut::kHeld][kVectorSize<T>] = {}, dweight[Cut::kHeld][kVectorSize<T>] = {};
#pragma unroll
  for (int i = 0; i < Cut::kHeld; ++i) {
    const int64_t column = int64_t(threadIdx.x % Cut::kGroup + i * Cut::kGroup) * kVectorSize<T>;
    if (column < args.dim) load_floats<kVectorSize<T>>(args.weight, args.weight_type, column, weight[i]);
  }
  Magnitude<T> magnitude;
  const auto rstd_of = [&](int64_t row) { return row < args.rows ? args.rstd[row] : 0.0F; };
  float rstd = rstd_of(first + group);
  for (int turn = 0; first < args.rows; first += step, ++turn) {
    const int stage = turn % kStages;
    const float next_rstd = rstd_of(first + step + group);
    rows.wait();
    finish_row<T, Cut>(args, first + group, rows, stage, rstd, weight, dweight, magnitude, rooms[turn % 2]);
    rows.ask(first + group + kStages * step, stage);
    rstd = next_rstd;
  }
  write_part<T, Cut>(args, dweight);
  raise_to_block<Cut::kThreads>(args.amax, magnitude);
}

// Any dim, any alignment. A thread owns its columns of the block's part, so it can add to them in memory.
template <typename T>
__global__ void __launch_bounds__(rms::kPlainThreads, rms::kPlainBlocks)
    plain_backward_kernel(RmsNormBackwardArgs args) {
  __shared__ BlockSumRoom<float> rooms[2];
  float* part = args.scratch + int64_t{blockIdx.x} * args.dim;
  for (int64_t column = threadIdx.x; column < args.dim; column += blockDim.x) part[column] = 0;
  Magnitude<T> magnitude;
  int turn = 0;
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const int64_t begin = row * args.dim;
    const T* dy = static_cast<const T*>(args.dy) + begin;
    const T* x = static_cast<const T*>(args.x) + begin;
    const float rstd = args.rstd[row];
    float dot = 0, weight[1];
    for (int64_t column = threadIdx.x; column < args.dim; column += blockDim.x) {
      const float share = static_cast<float>(dy[column]) * (static_cast<float>(x[column]) * rstd);
      load_floats<1>(args.weight, args.weight_type, column, weight);
      part[column] += share;
      dot += share * weight[0];
    }
    const float mean = block_sum<rms::kPlainThreads>(dot, rooms[turn]) / static_cast<float>(args.dim);
    turn ^= 1;
    for (int64_t column = threadIdx.x; column < args.dim; column += blockDim.x) {
      load_floats<1>(args.weight, args.weight_type, column, weight);
      const float around =
          args.residual_grad ? static_cast<float>(static_cast<const T*>(args.residual_grad)[begin + column]) : 0.0F;
      const float input = static_cast<float>(x[column]);  // dx may lie in its place
      const float value = static_cast<float>(dy[column]) * weight[0] - input * rstd * mean;
      const float values[1] = {value * rstd + around};
      const auto dx = from_float<T, 1>(values);
      store<T, 1>(static_cast<T*>(args.dx) + begin + column, dx);
      magnitude.add(dx);
      if (args.y == nullptr) continue;
      const float y[1] = {normalised(input, rstd, weight[0])};
      store_floats<T, 1>(static_cast<T*>(args.y) + begin + column, y);
    }
  }
  raise_to_block<rms::kPlainThreads>(args.amax, magnitude);
}

// False if no kernel holds the rows, or the device has no room for them. Sets `blocks`.
template <typename T>
bool launch_rows(const RmsNormBackwardArgs& args, int64_t& blocks, GpuStream stream) {
  bool launched = false;
  rms::with_cut<Cut<16, 1, 256>, Cut<32, 2, 256>, Cut<128, 2, 128>, Cut<256, 2, 256>, Cut<512, 2, 512>,
                Cut<1024, 2, 1024>>(args.dim / kVectorSize<T>, [&](auto cut) {
    using ItsCut = decltype(cut);
    constexpr int kStages = ItsCut::kThreads <= 512 ? 4 : 2;
    constexpr int64_t kBytes = Ring<ItsCut::kThreads>::bytes(RowsAhead<T, ItsCut, kStages>::kSlots);
    if (largest_shared_bytes(4 << 10) < kBytes) return;
    blocks = resident_blocks(ceil_div(args.rows, cut.kRows), backward_blocks(cut.kThreads));
    launch(backward_kernel<T, ItsCut, kStages>, blocks, cut.kThreads, kBytes, stream, args);
    launched = true;
  });
  return launched;
}

}  // namespace

void rms_norm_backward(const RmsNormBackwardArgs& args, GpuStream stream) {
  int64_t blocks = 0;
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    bool vector =
        args.dim % kVectorSize<T> == 0 && vector_aligned(args.weight, 0, 1) && vector_aligned(args.scratch, 0, 1);
    for (const void* pointer :
         {args.dy, args.x, args.residual_grad, static_cast<const void*>(args.dx), static_cast<const void*>(args.y)})
      vector = vector && vector_aligned(pointer, args.dim, sizeof(T));
    const bool done = vector && launch_rows<T>(args, blocks, stream);
    if (done) return;
    blocks = resident_blocks(args.rows, rms::kPlainBlocks);
    launch(plain_backward_kernel<T>, blocks, rms::kPlainThreads, 0, stream, args);
  });
  launch_sum_of_parts<1>({{{args.scratch, blocks, args.dweight, args.accumulate_dweight}}, args.dweight_type, args.dim},
                         stream);
}

int64_t rms_norm_backward_scratch_bytes(int64_t rows, int64_t dim) {
  return resident_blocks(rows, most_blocks(dim)) * dim * static_cast<int64_t>(sizeof(float));
}

}  // namespace titanium::kernels
