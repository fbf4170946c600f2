// Quantisation of a norm's result, which is computed here and never stored in high precision.
#include "titanium/kernels/cuda/device/float8_tile.cuh"
#include "titanium/kernels/cuda/device/rms_norm.cuh"

namespace titanium::kernels {
namespace {

using tile::kWidth;

template <typename T, bool kIsWide>
struct RmsNormSource {
  static constexpr bool kWide = kIsWide;
  static constexpr int kAhead = sizeof(T) == 2 ? 2 : 1;
  static constexpr int kBlocks = 3;
  struct Columns {
    float weight[kWidth];
  };
  struct Words {
    Raw<T, kWidth> x;
    float rstd;
  };

  __device__ Columns columns(int64_t column, int count) const {
    Columns columns = {};
    if constexpr (kWide) {
      load_floats<kWidth>(weight, weight_type, column, columns.weight);
    } else {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        float one[1] = {};
        if (j < count) load_floats<1>(weight, weight_type, column + j, one);
        columns.weight[j] = one[0];
      }
    }
    return columns;
  }
  __device__ Words load(int64_t row, int64_t column, int count) const {
    return {tile::load_elements<T, kWide>(x + row * dim + column, count), rstd[row]};
  }
  __device__ void values(const Words& words, const Columns& columns, float (&out)[kWidth]) const {
    to_float(words.x, out);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) out[j] = rms::normalised(out[j], words.rstd, columns.weight[j]);
    to_float(from_float<T, kWidth>(out), out);
  }

  const T* x;
  const float* rstd;
  const void* weight;
  ElementType weight_type;
  int64_t dim;
};

}  // namespace

void quantize_rms_norm(const QuantizeRmsNormArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    const bool wide = tile::allows_wide(args.out, args.rows, args.dim) && vector_aligned(args.x, args.dim, sizeof(T)) &&
                      vector_aligned(args.weight, 0, 1);
    const auto run = [&](auto source) {
      source = {static_cast<const T*>(args.x), args.rstd, args.weight, args.weight_type, args.dim};
      tile::launch_tiles(source, args.out, args.rows, args.dim, stream);
    };
    if (wide) {
      run(RmsNormSource<T, true>{});
    } else {
      run(RmsNormSource<T, false>{});
    }
  });
}

}  // namespace titanium::kernels
