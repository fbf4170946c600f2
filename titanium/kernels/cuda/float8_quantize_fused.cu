// Sources that compute what is quantised: it is never stored in high precision.
#include "titanium/kernels/cuda/device/float8_tile.cuh"
#include "titanium/kernels/cuda/device/rms_norm.cuh"
#include "titanium/kernels/cuda/device/swiglu.cuh"

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

template <typename T, bool kIsWide>
struct SwigluSource {
  static constexpr bool kWide = kIsWide;
  static constexpr int kAhead = 1;
  static constexpr int kBlocks = sizeof(T) == 2 ? 3 : 2;
  struct Columns {};
  struct Words {
    Raw<T, kWidth> gate, up;
  };

  __device__ Columns columns(int64_t, int) const { return {}; }
  __device__ Words load(int64_t row, int64_t column, int count) const {
    return {tile::load_elements<T, kWide>(gate + row * gate_stride + column, count),
            tile::load_elements<T, kWide>(up + row * up_stride + column, count)};
  }
  __device__ void values(const Words& words, const Columns&, float (&out)[kWidth]) const {
    float gates[kWidth];
    to_float(words.gate, gates);
    to_float(words.up, out);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) out[j] = swiglu_product(gates[j], out[j]);
    to_float(from_float<T, kWidth>(out), out);
  }

  const T* gate;
  const T* up;
  int64_t gate_stride;
  int64_t up_stride;
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

void quantize_swiglu(const QuantizeSwigluArgs& args, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    const bool wide = tile::allows_wide(args.out, args.rows, args.dim) &&
                      vector_aligned(args.gate, args.gate_stride, sizeof(T)) &&
                      vector_aligned(args.up, args.up_stride, sizeof(T));
    const auto run = [&](auto source) {
      source = {static_cast<const T*>(args.gate), static_cast<const T*>(args.up), args.gate_stride, args.up_stride};
      tile::launch_tiles(source, args.out, args.rows, args.dim, stream);
    };
    if (wide) {
      run(SwigluSource<T, true>{});
    } else {
      run(SwigluSource<T, false>{});
    }
  });
}

}  // namespace titanium::kernels
