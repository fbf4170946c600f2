#include "titanium/kernels/cuda/device/expert_row.cuh"
#include "titanium/kernels/cuda/device/float8.cuh"
#include "titanium/kernels/cuda/device/magnitude.cuh"
#include "titanium/kernels/cuda/device/ring.cuh"
#include "titanium/kernels/expert_float8.h"

namespace titanium::kernels {
namespace {

constexpr auto kE4m3 = Float8Format::kE4m3;

__global__ void line_ends_kernel(Float8LineEndsArgs args) {
  constexpr int kMultiple = kFloat8GroupMultiple;
  int before = 0;
  for (int64_t first = 0; first < args.groups; first += 32) {
    const int64_t group = first + threadIdx.x;
    int end = 0;  // of the lines of these 32 groups
    if (group < args.groups) end = args.ends[group] - (group > 0 ? args.ends[group - 1] : 0);
    end = (end + kMultiple - 1) / kMultiple * kMultiple;
    for (int offset = 1; offset < 32; offset *= 2) {
      const int below = __shfl_up_sync(kWholeWarp, end, offset);
      if (static_cast<int>(threadIdx.x) >= offset) end += below;
    }
    if (group < args.groups) args.line_ends[group] = before + end;
    before += __shfl_sync(kWholeWarp, end, 31);
  }
}

// Note [Slabs]
// A block has a slab: 64 bytes of every row of a group. It holds the slab in shared memory, so that rows are read once
// although the scale of a column is only known when all of them have been seen. Of a group with more rows than fit the
// block holds one part at a time; it reads all of them but the last one twice.
//
// A lane takes a run of kRun rows of one 32-bit word, which makes 16 bytes of one line or of two. A gap after each run
// lets eight runs of four words be read without meeting a bank twice.
constexpr int kThreads = 256;
constexpr int kRun = 16;
constexpr int kRunsOfWarp = 8;
constexpr int kMostRoom = 109 << 10;   // bytes, so that a multiprocessor has room for two blocks
constexpr int64_t kSlabsTogether = 4;  // of neighbouring blocks, where rows are gathered

// kWords of 16 bytes of a row.
template <int kWords>
constexpr int kSlabBytes = kWords * 16;
template <int kWords>
constexpr int kRunBytes = kRun * kSlabBytes<kWords> + 16;
template <typename T, int kWords>
constexpr int kColumns = kSlabBytes<kWords> / static_cast<int>(sizeof(T));

// What all slabs share: rows of experts, or matrices that all have as many rows.
struct SlabArgs {
  const void* x;
  const int32_t* choice_of_row;  // null: rows lie as they come
  int64_t top_k;
  const int32_t* ends;  // null: matrices of rows_of_group
  const int32_t* line_ends;
  int64_t rows_of_group;
  int64_t groups;
  int64_t dim;
  uint8_t* lines;
  int64_t length;  // of a line
  float* reciprocals;
  int together;  // neighbouring slabs
  int part;      // rows held at once, a multiple of kRun * kRunsOfWarp
};

struct Slab {
  int64_t group;
  int64_t row;     // the first one, among all rows
  int64_t count;   // of rows
  int64_t filled;  // elements of the lines, zeros among them
  int64_t column;
  uint8_t* lines;  // where the line of the first column begins
};

// Neighbouring blocks have the same columns where rows are gathered, because groups share tokens, and else the same
// rows.
template <typename T, int kWords>
__device__ Slab find_slab(const SlabArgs& args) {
  Slab slab = {};
  const int64_t inner = blockIdx.x % args.together, rest = blockIdx.x / args.together;
  slab.group = rest % args.groups;
  slab.column = (rest / args.groups * args.together + inner) * kColumns<T, kWords>;
  if (args.ends == nullptr) {
    slab.row = slab.group * args.rows_of_group;
    slab.count = slab.filled = args.rows_of_group;
    slab.lines = args.lines + (slab.group * args.dim + slab.column) * args.length;
    return slab;
  }
  const int64_t line = slab.group > 0 ? args.line_ends[slab.group - 1] : 0;
  slab.row = slab.group > 0 ? args.ends[slab.group - 1] : 0;
  slab.count = args.ends[slab.group] - slab.row;
  slab.filled = args.line_ends[slab.group] - line;
  slab.lines = args.lines + slab.column * args.length + line;
  return slab;
}

template <int kWords>
__device__ unsigned char* place_of(unsigned char* room, int row) {
  return room + row * kSlabBytes<kWords> + row / kRun * 16;
}

// Rows `first` ... of the slab travel to the room, and zeros after the last one. What a thread has asked for is there.
template <typename T, int kWords>
__device__ void fetch(const SlabArgs& args, const Slab& slab, int64_t first, unsigned char* room) {
  constexpr int kBatch = 8, kStep = kThreads / kWords;
  const int word = threadIdx.x % kWords;
  const int64_t column = slab.column + word * kVectorSize<T>;
  const int rows = static_cast<int>(min(static_cast<int64_t>(args.part), slab.filled - first));
  const int count = column < args.dim ? static_cast<int>(min(static_cast<int64_t>(rows), slab.count - first)) : 0;
  const T* x = static_cast<const T*>(args.x) + column;
  const int32_t* choices = args.choice_of_row + slab.row + first;
  for (int begin = threadIdx.x / kWords; begin < rows; begin += kBatch * kStep) {
    int choice[kBatch];  // all of them are under way before the first is used
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      choice[i] = 0;
      if (args.choice_of_row != nullptr && begin + i * kStep < count) choice[i] = choices[begin + i * kStep];
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int row = begin + i * kStep;
      if (row >= rows) break;
      const int64_t from = args.choice_of_row != nullptr ? quotient(choice[i], args.top_k) : slab.row + first + row;
      ask_word(reinterpret_cast<uint4*>(place_of<kWords>(room, row)) + word, row < count ? x + from * args.dim : args.x,
               row < count);
    }
  }
  close_batch();
  wait_for_all_but<0>();
}

template <typename T>
using Found = ColumnMagnitudes<T, kVectorSize<T>>;

// Of the words that this thread has fetched.
template <typename T, int kWords>
__device__ void add_magnitudes(unsigned char* room, int rows, Found<T>& found) {
#pragma unroll 4
  for (int row = threadIdx.x / kWords; row < rows; row += kThreads / kWords) {
    Raw<T, kVectorSize<T>> raw;
    raw.words[0] = reinterpret_cast<const uint4*>(place_of<kWords>(room, row))[threadIdx.x % kWords];
    found.add(raw);
  }
}

// All threads must call it. Afterwards all that they have fetched is there for all.
template <typename T, int kWords>
__device__ void find_scales(const SlabArgs& args, const Slab& slab, const Found<T>& found,
                            float (&of_column)[kColumns<T, kWords>]) {
  __shared__ unsigned bits_of_column[kColumns<T, kWords>];
  if (threadIdx.x < kColumns<T, kWords>) bits_of_column[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kVectorSize<T>; ++j) {
    unsigned bits = found.bits(j);
#pragma unroll
    for (int other = kWords; other < 32; other *= 2) bits = max(bits, __shfl_xor_sync(kWholeWarp, bits, other));
    if (threadIdx.x % 32 < kWords) atomicMax(&bits_of_column[threadIdx.x % 32 * kVectorSize<T> + j], bits);
  }
  __syncthreads();
  if (threadIdx.x < kColumns<T, kWords>) {
    const float scale = float8_scale<kE4m3>(__uint_as_float(bits_of_column[threadIdx.x]), /*power_of_two=*/true);
    of_column[threadIdx.x] = scale;
    const int64_t column = slab.column + threadIdx.x;
    if (column < args.dim && slab.count > 0) args.reciprocals[slab.group * args.dim + column] = 1.0F / scale;
  }
  __syncthreads();
}

template <typename T>
__device__ float element(unsigned word, int column) {
  if constexpr (sizeof(T) == 4) return __uint_as_float(word);
  return __uint_as_float(column == 0 ? word << 16 : word & 0xFFFF0000U);
}

// The rows that are in the room become the elements `first` ... of the lines.
template <typename T, int kWords>
__device__ void write_lines(const SlabArgs& args, const Slab& slab, int64_t first, unsigned char* room,
                            const float (&scales)[kColumns<T, kWords>]) {
  constexpr int kOfWord = 4 / static_cast<int>(sizeof(T));  // columns
  const int rows = static_cast<int>(min(static_cast<int64_t>(args.part), slab.filled - first));
  const int lane = threadIdx.x % 32;
  const int tasks = (rows + kRun * kRunsOfWarp - 1) / (kRun * kRunsOfWarp) * kWords;
  for (int task = threadIdx.x / 32; task < tasks; task += kThreads / 32) {
    const int run = task / kWords * kRunsOfWarp + lane % kRunsOfWarp;
    const int word = task % kWords * 4 + lane / kRunsOfWarp, column = word * kOfWord;
    if (run * kRun >= rows || slab.column + column >= args.dim) continue;
    const auto* from = reinterpret_cast<const unsigned*>(room + run * kRunBytes<kWords>) + word;
    unsigned words[kRun];
#pragma unroll
    for (int i = 0; i < kRun; ++i) words[i] = from[i * (kSlabBytes<kWords> / 4)];
#pragma unroll
    for (int k = 0; k < kOfWord; ++k) {
      const float scale = scales[column + k];
      unsigned made[kRun / 4];
#pragma unroll
      for (int i = 0; i < kRun; i += 4) {
        made[i / 4] = to_float8<kE4m3>(element<T>(words[i], k) * scale, element<T>(words[i + 1], k) * scale,
                                       element<T>(words[i + 2], k) * scale, element<T>(words[i + 3], k) * scale);
      }
      *reinterpret_cast<uint4*>(slab.lines + (column + k) * args.length + first + run * kRun) =
          make_uint4(made[0], made[1], made[2], made[3]);
    }
  }
}

template <typename T, int kWords>
__global__ void __launch_bounds__(kThreads, 2) slabs_kernel(SlabArgs args) {
  __shared__ float scales[kColumns<T, kWords>];
  auto* room = dynamic_shared<unsigned char>();
  const Slab slab = find_slab<T, kWords>(args);
  if (slab.column >= args.dim) return;
  const int64_t last = slab.filled > 0 ? (slab.filled - 1) / args.part : 0;
  Found<T> found;
  for (int64_t part = 0; part <= last; ++part) {
    fetch<T, kWords>(args, slab, part * args.part, room);
    const int64_t rows = min(static_cast<int64_t>(args.part), slab.filled - part * args.part);
    add_magnitudes<T, kWords>(room, static_cast<int>(rows), found);
  }
  find_scales<T, kWords>(args, slab, found, scales);
  write_lines<T, kWords>(args, slab, last * args.part, room, scales);
  for (int64_t part = last - 1; part >= 0; --part) {
    __syncthreads();
    fetch<T, kWords>(args, slab, part * args.part, room);
    __syncthreads();
    write_lines<T, kWords>(args, slab, part * args.part, room, scales);
  }
}

template <typename T, int kWords>
void launch_slabs(SlabArgs args, GpuStream stream) {
  constexpr int64_t kStep = kRun * kRunsOfWarp, kStepBytes = kRunsOfWarp * kRunBytes<kWords>, kFixedBytes = 1024;
  const int64_t room = largest_shared_bytes(kFixedBytes) < kMostRoom ? largest_shared_bytes(kFixedBytes) : kMostRoom;
  args.part = static_cast<int>(room / kStepBytes * kStep);
  const int64_t slabs = ceil_div(args.dim, kColumns<T, kWords>);
  args.together = static_cast<int>(args.choice_of_row == nullptr || slabs < kSlabsTogether ? slabs : kSlabsTogether);
  launch(slabs_kernel<T, kWords>, args.groups * ceil_div(slabs, args.together) * args.together, kThreads,
         static_cast<size_t>(args.part / kStep * kStepBytes), stream, args);
}

void launch_slabs(ElementType type, const SlabArgs& args, GpuStream stream) {
  with_type(type, [&](auto element) {
    using T = decltype(element);
    if (args.rows_of_group * kSlabBytes<4> > kMostRoom) return launch_slabs<T, 2>(args, stream);
    launch_slabs<T, 4>(args, stream);
  });
}

}  // namespace

void float8_line_ends(const Float8LineEndsArgs& args, GpuStream stream) {
  launch(line_ends_kernel, 1, 32, 0, stream, args);
}

void quantize_groups(const QuantizeGroupsArgs& args, GpuStream stream) {
  launch_slabs(args.type,
               {.x = args.x,
                .choice_of_row = args.choice_of_row,
                .top_k = args.top_k,
                .ends = args.ends,
                .line_ends = args.line_ends,
                .rows_of_group = 0,
                .groups = args.groups,
                .dim = args.dim,
                .lines = args.lines,
                .length = args.length,
                .reciprocals = args.reciprocals,
                .together = 1,
                .part = 0},
               stream);
}

void quantize_matrices(const QuantizeMatricesArgs& args, GpuStream stream) {
  launch_slabs(args.type,
               {.x = args.x,
                .choice_of_row = nullptr,
                .top_k = 1,
                .ends = nullptr,
                .line_ends = nullptr,
                .rows_of_group = args.rows,
                .groups = args.matrices,
                .dim = args.dim,
                .lines = args.lines,
                .length = args.rows,
                .reciprocals = args.reciprocals,
                .together = 1,
                .part = 0},
               stream);
}

}  // namespace titanium::kernels
