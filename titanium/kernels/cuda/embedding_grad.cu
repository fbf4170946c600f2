#include "titanium/kernels/cuda/launch.cuh"
#include "titanium/kernels/cuda/vector.cuh"
#include "titanium/kernels/embedding_grad.h"

namespace titanium::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kBlocks = 5;   // per multiprocessor
constexpr int kWindow = 32;  // sorted tokens
constexpr int kBatch = 4;    // rows that a thread has under way
constexpr int kParts = 2;    // of a window: of the run that came in, and of the run that goes out
constexpr int kWide = 8;     // of what dim must be a multiple for the vector path

// A window and the columns that this thread sums, for task number `task`.
template <int N>
struct Task {
  __device__ Task(const EmbeddingGradArgs& args, int64_t task) {
    const int64_t slices = (args.dim + kThreads * N - 1) / (kThreads * N);
    window = quotient(task, slices);
    column = (task - window * slices) * (kThreads * N) + int64_t{threadIdx.x} * N;
    begin = window * kWindow;
    end = begin + kWindow < args.tokens ? begin + kWindow : args.tokens;
  }
  int64_t window;
  int64_t column;
  int64_t begin;
  int64_t end;
};

template <typename D>
__device__ D* table_at(const EmbeddingGradArgs& args, int64_t id, int64_t column) {
  return static_cast<D*>(args.dtable) + (id - args.first_id) * args.dim + column;
}

__device__ bool in_table(const EmbeddingGradArgs& args, int64_t id) {
  return id >= args.first_id && id < args.first_id + args.table_rows;
}

__device__ float* part_at(const EmbeddingGradArgs& args, int64_t window, int part, int64_t column) {
  return args.scratch + (window * kParts + part) * args.dim + column;
}

// Where the sum goes after a token.
enum class Goal {
  kNextToken,  // the run is not over
  kTable,
  kIncoming,  // the run began in an earlier window
  kOutgoing,  // the run goes on in the next window
};

template <int N>
__device__ Goal goal_after(const EmbeddingGradArgs& args, const Task<N>& task, int64_t token, int64_t id) {
  const bool at_end = token + 1 == task.end;
  if (!at_end && args.sorted_ids[token + 1] == id) return Goal::kNextToken;
  if (task.begin > 0 && args.sorted_ids[task.begin - 1] == id) return Goal::kIncoming;
  if (at_end && task.end < args.tokens && args.sorted_ids[task.end] == id) return Goal::kOutgoing;
  return Goal::kTable;
}

// Loads of rows and of the table's words that they will be added to are under way together.
template <typename T, typename D, int N>
__device__ void add_tokens(const EmbeddingGradArgs& args, const Task<N>& task, int64_t first, float (&sum)[N]) {
  Raw<T, N> rows[kBatch] = {};
  Raw<D, N> before[kBatch];
  Goal goals[kBatch];
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    goals[i] = Goal::kNextToken;
    if (first + i >= task.end) continue;
    const int64_t id = args.sorted_ids[first + i];
    if (!in_table(args, id)) continue;
    rows[i] = load<T, N>(static_cast<const T*>(args.dy) + args.order[first + i] * args.dim + task.column);
    goals[i] = goal_after(args, task, first + i, id);
    if (goals[i] == Goal::kTable) before[i] = load<D, N>(table_at<D>(args, id, task.column));
  }
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    float values[N];
    to_float(rows[i], values);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] += values[j];
    if (goals[i] == Goal::kNextToken) continue;
    if (goals[i] == Goal::kTable) {
      to_float(before[i], values);
#pragma unroll
      for (int j = 0; j < N; ++j) sum[j] += values[j];
      store_floats<D, N>(table_at<D>(args, args.sorted_ids[first + i], task.column), sum);
    } else {
      store_floats<float, N>(part_at(args, task.window, goals[i] == Goal::kIncoming ? 0 : 1, task.column), sum);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] = 0;
  }
}

template <typename T, typename D, int N>
__global__ void __launch_bounds__(kThreads, kBlocks) windows_kernel(EmbeddingGradArgs args) {
  const int64_t slices = (args.dim + kThreads * N - 1) / (kThreads * N);
  const int64_t tasks = (args.tokens + kWindow - 1) / kWindow * slices;
  for (int64_t number = blockIdx.x; number < tasks; number += gridDim.x) {
    const Task<N> task(args, number);
    if (task.column >= args.dim) continue;
    float sum[N] = {};
    for (int64_t first = task.begin; first < task.end; first += kBatch) add_tokens<T, D, N>(args, task, first, sum);
  }
}

// Sums the parts of the runs that begin in a window and cross its end.
template <typename D, int N>
__global__ void __launch_bounds__(kThreads, kBlocks) runs_kernel(EmbeddingGradArgs args) {
  const int64_t slices = (args.dim + kThreads * N - 1) / (kThreads * N);
  const int64_t tasks = (args.tokens + kWindow - 1) / kWindow * slices;
  for (int64_t number = blockIdx.x; number < tasks; number += gridDim.x) {
    const Task<N> task(args, number);
    if (task.column >= args.dim || task.end >= args.tokens) continue;
    const int64_t id = args.sorted_ids[task.end - 1];
    const bool came_in = task.begin > 0 && args.sorted_ids[task.begin - 1] == id;
    if (came_in || args.sorted_ids[task.end] != id || !in_table(args, id)) continue;
    float sum[N];
    to_float(load<float, N>(part_at(args, task.window, 1, task.column)), sum);
    for (int64_t window = task.window + 1; window * kWindow < args.tokens && args.sorted_ids[window * kWindow] == id;
         ++window) {
      float part[N];
      to_float(load<float, N>(part_at(args, window, 0, task.column)), part);
#pragma unroll
      for (int j = 0; j < N; ++j) sum[j] += part[j];
    }
    D* at = table_at<D>(args, id, task.column);
    float before[N];
    to_float(load<D, N>(at), before);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] += before[j];
    store_floats<D, N>(at, sum);
  }
}

template <typename T, typename D, int N>
void launch_both(const EmbeddingGradArgs& args, CUstream_st* stream) {
  const int64_t tasks = ceil_div(args.tokens, kWindow) * ceil_div(args.dim, kThreads * N);
  launch(windows_kernel<T, D, N>, resident_blocks(tasks, kBlocks), kThreads, 0, stream, args);
  launch(runs_kernel<D, N>, resident_blocks(tasks, kBlocks), kThreads, 0, stream, args);
}

}  // namespace

void embedding_grad(const EmbeddingGradArgs& args, CUstream_st* stream) {
  const bool vector = args.dim % kWide == 0 && vector_aligned(args.dy, 0, 1) && vector_aligned(args.dtable, 0, 1) &&
                      vector_aligned(args.scratch, 0, 1);
  with_type(args.dy_type, [&](auto dy) {
    with_type(args.dtable_type, [&](auto dtable) {
      if (vector) {
        launch_both<decltype(dy), decltype(dtable), step_of_widest(sizeof(dtable))>(args, stream);
      } else {
        launch_both<decltype(dy), decltype(dtable), 1>(args, stream);
      }
    });
  });
}

int64_t embedding_grad_scratch_bytes(int64_t tokens, int64_t dim) {
  return ceil_div(tokens, kWindow) * kParts * dim * static_cast<int64_t>(sizeof(float));
}

}  // namespace titanium::kernels
