// Quantisation by tiles: rows are read once, and written as float8 both as they are and transposed.
//
// A thread has kDepth rows of kWidth columns at a time. Of them it writes the rows at once; bytes of the same column
// become one word, which goes to the tile in shared memory, out of which columns are written in words of 16 bytes.
//
// A Source is what is quantised, a struct that travels with the launch:
//   Words    what has to be read for kWidth elements of a row, as it is in memory
//   Columns  what is the same for all rows
//   kAhead   for how many passes of kDepth rows a thread reads ahead
//   kBlocks  of the kernel, per multiprocessor
//   kWide    whether accesses are 128 bits wide; otherwise `count`, the elements that are within the row, may be
//            anything from 1 to kWidth, and elements beyond are not used
//   load(row, column, count), columns(column, count), and values(words, columns, out), which gives floats that have
//   been rounded to the type in which they would have been stored.
#pragma once

#include "titanium/kernels/cuda/device/float8.cuh"
#include "titanium/kernels/cuda/device/launch.cuh"

namespace titanium::kernels::tile {

constexpr int kSize = 128;  // rows and columns of a tile
constexpr int kThreads = 256;
constexpr int kWidth = 8;
constexpr int kDepth = 4;
constexpr int kAcross = kSize / kWidth;                         // threads beside each other
constexpr int kPasses = kSize * kAcross / (kThreads * kDepth);  // until the threads have treated all rows
constexpr int kWord = 16;                                       // bytes of a word of the transposed output

template <typename T, bool kWide>
__device__ Raw<T, kWidth> load_elements(const T* from, int count) {
  // Elements of 4 bytes make two words: the second lies in the sectors that the first has brought into L1.
  if constexpr (kWide) return sizeof(T) == 2 ? load<T, kWidth>(from) : load_again<T, kWidth>(from);
  Raw<T, kWidth> raw = {};
  T* elements = reinterpret_cast<T*>(&raw);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    if (j < count) elements[j] = from[j];
  }
  return raw;
}

// A tile of float8, column by column. Four bytes are put at a time, 16 are taken. Word w of column c lies at w ^ 2 * (c
// / kWidth): then neither putting, where a warp has 16 groups of columns and two words, nor taking, where 8 lanes have
// a column, meets a bank twice.
class Transposed {
 public:
  // Words of kWidth columns out of kDepth rows.
  __device__ void put(int across, int word, const uint2 (&rows)[kDepth]) {
    unsigned columns[kWidth];
    transpose(rows[0].x, rows[1].x, rows[2].x, rows[3].x, columns);
    transpose(rows[0].y, rows[1].y, rows[2].y, rows[3].y, columns + kDepth);
    unsigned* to = reinterpret_cast<unsigned*>(columns_[across * kWidth]) + (word ^ 2 * across);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) to[j * kSize / 4] = columns[j];
  }
  // Rows kWord * word ... of a column.
  __device__ uint4 take(int column, int word) const {
    const int across = column / kWidth;
    const uint4 as_put = columns_[column][word ^ across / 2];
    return across % 2 == 0 ? as_put : make_uint4(as_put.z, as_put.w, as_put.x, as_put.y);
  }

 private:
  static_assert(kDepth == 4 && kWidth == 8 && kSize == 128);
  __device__ static void transpose(unsigned a, unsigned b, unsigned c, unsigned d, unsigned* columns) {
    const unsigned ab_low = __byte_perm(a, b, 0x5140), cd_low = __byte_perm(c, d, 0x5140);
    const unsigned ab_high = __byte_perm(a, b, 0x7362), cd_high = __byte_perm(c, d, 0x7362);
    columns[0] = __byte_perm(ab_low, cd_low, 0x5410);
    columns[1] = __byte_perm(ab_low, cd_low, 0x7632);
    columns[2] = __byte_perm(ab_high, cd_high, 0x5410);
    columns[3] = __byte_perm(ab_high, cd_high, 0x7632);
  }

  uint4 columns_[kSize][kSize / kWord];
};

template <typename Source>
struct TileArgs {
  Source source;
  Float8Output out;  // with a scale for each column, amax and reciprocal are [dim]
  int64_t rows;
  int64_t dim;
};

// Where a tile begins.
struct Corner {
  int64_t row;
  int64_t column;
};

template <bool kWide>
__device__ void store_elements(uint8_t* to, const uint2& elements, int count) {
  if constexpr (kWide) {
    *reinterpret_cast<uint2*>(to) = elements;
  } else {
    const uint8_t* bytes = reinterpret_cast<const uint8_t*>(&elements);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      if (j < count) to[j] = bytes[j];
    }
  }
}

// Quantises this thread's part of a tile: writes `values`, and puts the rest into `transposed`.
template <typename Source, Float8Format kFormat>
__device__ void quantize_rows_of_tile(const TileArgs<Source>& args, const Corner& corner, const float (&scale)[kWidth],
                                      Transposed& transposed) {
  const int across = threadIdx.x % kAcross;
  const int64_t column = corner.column + across * kWidth;
  const int count = args.dim - column < kWidth ? static_cast<int>(args.dim - column) : kWidth;
  typename Source::Columns columns = {};
  if (count > 0) columns = args.source.columns(column, count);
#pragma unroll
  for (int pass = 0; pass < kPasses; pass += Source::kAhead) {
    typename Source::Words words[Source::kAhead][kDepth] = {};
    const auto word_of = [&](int ahead) {
      return static_cast<int>(threadIdx.x) / kAcross + (pass + ahead) * (kThreads / kAcross);
    };
#pragma unroll
    for (int i = 0; i < Source::kAhead * kDepth; ++i) {
      const int64_t row = corner.row + word_of(i / kDepth) * kDepth + i % kDepth;
      if (count > 0 && row < args.rows) words[i / kDepth][i % kDepth] = args.source.load(row, column, count);
    }
#pragma unroll
    for (int ahead = 0; ahead < Source::kAhead; ++ahead) {
      uint2 rows[kDepth];
#pragma unroll
      for (int depth = 0; depth < kDepth; ++depth) {
        float v[kWidth];
        args.source.values(words[ahead][depth], columns, v);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) v[j] *= scale[j];
        rows[depth] = {to_float8<kFormat>(v[0], v[1], v[2], v[3]), to_float8<kFormat>(v[4], v[5], v[6], v[7])};
        const int64_t row = corner.row + word_of(ahead) * kDepth + depth;
        if (args.out.values != nullptr && count > 0 && row < args.rows)
          store_elements<Source::kWide>(static_cast<uint8_t*>(args.out.values) + row * args.dim + column, rows[depth],
                                        count);
      }
      if (args.out.transposed != nullptr) transposed.put(across, word_of(ahead), rows);
    }
  }
}

template <bool kWide>
__device__ void write_transposed(const Transposed& transposed, const Corner& corner, uint8_t* out, int64_t rows,
                                 int64_t dim) {
  constexpr int kWords = kSize / kWord;
  const int word = threadIdx.x % kWords;
  const int64_t row = corner.row + word * kWord;
#pragma unroll
  for (int i = 0; i < kSize * kWords / kThreads; ++i) {
    const int column = threadIdx.x / kWords + i * (kThreads / kWords);
    if (corner.column + column >= dim || row >= rows) continue;
    const uint4 bytes = transposed.take(column, word);
    uint8_t* to = out + (corner.column + column) * rows + row;
    if constexpr (kWide) {
      *reinterpret_cast<uint4*>(to) = bytes;
    } else {
      for (int j = 0; j < kWord && row + j < rows; ++j) to[j] = reinterpret_cast<const uint8_t*>(&bytes)[j];
    }
  }
}

// Fills `scale` with the scales of this thread's columns. The tiles of the first rows write the reciprocals.
template <typename Source, Float8Format kFormat>
__device__ void find_column_scales(const TileArgs<Source>& args, const Corner& corner, float (&scale)[kWidth]) {
  __shared__ float of_column[kSize];
  const int64_t column = corner.column + threadIdx.x;
  if (threadIdx.x < kSize && column < args.dim) {
    const float found = float8_scale<kFormat>(args.out.amax[column], args.out.power_of_two);
    of_column[threadIdx.x] = found;
    if (corner.row == 0) args.out.reciprocal[column] = 1.0F / found;
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kWidth; ++j) scale[j] = of_column[threadIdx.x % kAcross * kWidth + j];
}

template <typename Source, Float8Format kFormat, bool kScaleOfColumn>
__global__ void __launch_bounds__(kThreads, Source::kBlocks) quantize_kernel(TileArgs<Source> args) {
  __shared__ Transposed transposed;
  float scale[kWidth];
  if constexpr (!kScaleOfColumn) {
    const float of_all = float8_scale<kFormat>(*args.out.amax, args.out.power_of_two);
    if (args.out.reciprocal != nullptr && blockIdx.x == 0 && threadIdx.x == 0) *args.out.reciprocal = 1.0F / of_all;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) scale[j] = of_all;
  }
  const int64_t across = (args.dim + kSize - 1) / kSize, tiles = across * ((args.rows + kSize - 1) / kSize);
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t down = quotient(tile, across);
    const Corner corner = {down * kSize, (tile - down * across) * kSize};
    if constexpr (kScaleOfColumn) find_column_scales<Source, kFormat>(args, corner, scale);
    quantize_rows_of_tile<Source, kFormat>(args, corner, scale, transposed);
    if (args.out.transposed == nullptr) continue;
    __syncthreads();
    write_transposed<Source::kWide>(transposed, corner, static_cast<uint8_t*>(args.out.transposed), args.rows,
                                    args.dim);
    __syncthreads();
  }
}

// Whether the sizes and the outputs allow a source with kWide.
inline bool allows_wide(const Float8Output& out, int64_t rows, int64_t dim) {
  return dim % kWidth == 0 && vector_aligned(out.values, 0, 1) && vector_aligned(out.transposed, 0, 1) &&
         (out.transposed == nullptr || rows % kWord == 0);
}

// At least one block, because the reciprocal is written even if nothing is quantised.
template <bool kScaleOfColumn = false, typename Source>
void launch_tiles(const Source& source, const Float8Output& out, int64_t rows, int64_t dim, GpuStream stream) {
  const int64_t tiles = ceil_div(rows, kSize) * ceil_div(dim, kSize);
  with_format(out.format, [&](auto tag) {
    launch(quantize_kernel<Source, decltype(tag)::kFormat, kScaleOfColumn>, tiles > 0 ? tiles : 1, kThreads, 0, stream,
           TileArgs<Source>{source, out, rows, dim});
  });
}

}  // namespace titanium::kernels::tile
