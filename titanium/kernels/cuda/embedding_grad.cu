#include "titanium/kernels/cuda/device/launch.cuh"
#include "titanium/kernels/cuda/device/reduce.cuh"
#include "titanium/kernels/cuda/device/vector.cuh"
#include "titanium/kernels/embedding_grad.h"

namespace titanium::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kBlocks = 8;       // per multiprocessor
constexpr int kWindow = 32;      // sorted tokens: one for each lane of a warp
constexpr int kBatch = 4;        // rows that a thread has under way
constexpr int kParts = 2;        // of a window: of the run that came in, and of the run that goes out
constexpr int kWide = 8;         // of what dim must be a multiple for the vector path
constexpr int64_t kNobody = -1;  // the id of a token that does not exist

// The ids around a window: place 0 is its first token.
struct Ids {
  static constexpr int kBefore = kWindow + 1, kCount = kBefore + 2 * kWindow;
  static_assert(kCount <= kThreads);

  __device__ void read(const EmbeddingGradArgs& args, int64_t begin) {
    const int64_t token = begin - kBefore + static_cast<int>(threadIdx.x);
    if (threadIdx.x < kCount) ids[threadIdx.x] = token >= 0 && token < args.tokens ? args.sorted_ids[token] : kNobody;
  }
  __device__ int64_t operator[](int place) const { return ids[kBefore + place]; }
  __device__ bool same(int a, int b) const { return (*this)[a] == (*this)[b] && (*this)[a] != kNobody; }

  int64_t ids[kCount];
};

// What a window sums: its own tokens without those of a short run that came in, and the rest of a short run that goes
// on in the next window. Note [Sorted tokens].
struct Window {
  explicit __device__ Window(const Ids& ids) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto count = [&](bool yes) { return __popc(__ballot_sync(kWholeWarp, lane < kWindow && yes)); };
    const int existing = count(ids[lane] != kNobody), as_first = count(ids.same(lane, 0)),
              as_last = count(ids.same(kWindow - 1, kWindow + lane));
    const bool comes_in = ids.same(-1, 0), covered = comes_in && as_first == kWindow;
    long_in = comes_in && (covered || ids.same(-kWindow - 1, 0));
    long_out = !covered && as_last == kWindow;
    first = comes_in && !long_in ? as_first : 0;
    end = existing + (covered || long_out || first == kWindow ? 0 : as_last);
  }
  int first, end;
  bool long_in;   // the first token's run began in an earlier window and is a long one
  bool long_out;  // a long run begins here
};

// Where the sum goes after a token.
enum class Goal : int {
  kNextToken,  // the run is not over
  kTable,
  kIncoming,  // the part of a long run that began in an earlier window
  kOutgoing,  // the part of a long run that goes on in the next window
  kNowhere,   // the token's row is not added at all
};

// A token as all threads of the block need it.
struct Token {
  int64_t dy;     // where its row begins
  int64_t table;  // where the row begins to which it belongs
  Goal goal;
};

__device__ Token describe(const EmbeddingGradArgs& args, const Ids& ids, const Window& window, int place,
                          int64_t dy_row) {
  const int64_t row = ids[place] - args.first_id;
  if (place < window.first || place >= window.end || row < 0 || row >= args.table_rows) return {0, 0, Goal::kNowhere};
  const bool goes_on = place + 1 < window.end && ids.same(place, place + 1);
  const Goal goal = goes_on                                      ? Goal::kNextToken
                    : window.long_in && ids.same(place, 0)       ? Goal::kIncoming
                    : window.long_out && place + 1 == window.end ? Goal::kOutgoing
                                                                 : Goal::kTable;
  return {dy_row * args.dim, row * args.dim, goal};
}

// The block's window, and the columns of this thread.
template <int N>
struct Task {
  explicit __device__ Task(const EmbeddingGradArgs& args) {
    const int64_t slices = (args.dim + kThreads * N - 1) / (kThreads * N);
    window = quotient(blockIdx.x, slices);
    column = (blockIdx.x - window * slices) * (kThreads * N) + int64_t{threadIdx.x} * N;
  }
  __device__ float* part(const EmbeddingGradArgs& args, int64_t of_window, Goal goal) const {
    return args.scratch + (of_window * kParts + (goal == Goal::kIncoming ? 0 : 1)) * args.dim + column;
  }
  int64_t window;
  int64_t column;
};

// Loads of rows and of the table's words that they will be added to are under way together.
template <typename T, typename D, int N>
__device__ void add_tokens(const EmbeddingGradArgs& args, const Task<N>& task, const Token* tokens, float (&sum)[N]) {
  const T* dy = static_cast<const T*>(args.dy) + task.column;
  D* table = static_cast<D*>(args.dtable) + task.column;
  Raw<T, N> rows[kBatch] = {};
  Raw<D, N> before[kBatch];
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    if (tokens[i].goal != Goal::kNowhere) rows[i] = load<T, N>(dy + tokens[i].dy);
    if (tokens[i].goal == Goal::kTable) before[i] = load<D, N>(table + tokens[i].table);
  }
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const Goal goal = tokens[i].goal;
    if (goal == Goal::kNowhere) continue;
    float values[N];
    to_float(rows[i], values);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] += values[j];
    if (goal == Goal::kNextToken) continue;
    if (goal == Goal::kTable) {
      to_float(before[i], values);
#pragma unroll
      for (int j = 0; j < N; ++j) sum[j] += values[j];
      store_floats<D, N>(table + tokens[i].table, sum);
    } else {
      store_floats<float, N>(task.part(args, task.window, goal), sum);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] = 0;
  }
}

template <typename T, typename D, int N>
__global__ void __launch_bounds__(kThreads, kBlocks) windows_kernel(EmbeddingGradArgs args) {
  __shared__ Ids ids;
  __shared__ Token tokens[2 * kWindow + kBatch];
  let_second_kernel_come();
  const Task<N> task(args);
  const int64_t begin = task.window * kWindow;
  const int place = static_cast<int>(threadIdx.x);
  ids.read(args, begin);
  const int64_t dy_row = place < 2 * kWindow && begin + place < args.tokens ? args.order[begin + place] : 0;
  __syncthreads();
  const Window window(ids);
  if (place < 2 * kWindow) tokens[place] = describe(args, ids, window, place, dy_row);
  if (place < kBatch) tokens[2 * kWindow + place] = {0, 0, Goal::kNowhere};
  __syncthreads();
  if (task.column >= args.dim) return;
  float sum[N] = {};
  for (int first = window.first; first < window.end; first += kBatch)
    add_tokens<T, D, N>(args, task, tokens + first, sum);
}

// Sums the parts of the long runs, each where it begins.
template <typename D, int N>
__global__ void __launch_bounds__(kThreads) runs_kernel(EmbeddingGradArgs args) {
  __shared__ Ids ids;
  const Task<N> task(args);
  ids.read(args, task.window * kWindow);
  __syncthreads();
  wait_for_first_kernel();
  const int64_t id = ids[kWindow - 1], row = id - args.first_id;
  if (!Window(ids).long_out || task.column >= args.dim || row < 0 || row >= args.table_rows) return;
  float sum[N];
  to_float(load<float, N>(task.part(args, task.window, Goal::kOutgoing)), sum);
  for (int64_t window = task.window + 1; window * kWindow < args.tokens && args.sorted_ids[window * kWindow] == id;
       ++window) {
    float part[N];
    to_float(load<float, N>(task.part(args, window, Goal::kIncoming)), part);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] += part[j];
  }
  D* at = static_cast<D*>(args.dtable) + row * args.dim + task.column;
  float before[N];
  to_float(load<D, N>(at), before);
#pragma unroll
  for (int j = 0; j < N; ++j) sum[j] += before[j];
  store_floats<D, N>(at, sum);
}

template <typename T, typename D, int N>
void launch_both(const EmbeddingGradArgs& args, GpuStream stream) {
  const int64_t tasks = ceil_div(args.tokens, kWindow) * ceil_div(args.dim, kThreads * N);
  launch(windows_kernel<T, D, N>, tasks, kThreads, 0, stream, args);
  launch_second(runs_kernel<D, N>, tasks, kThreads, stream, args);
}

}  // namespace

void embedding_grad(const EmbeddingGradArgs& args, GpuStream stream) {
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
