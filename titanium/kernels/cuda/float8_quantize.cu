#include "titanium/kernels/cuda/device/float8_tile.cuh"

namespace titanium::kernels {
namespace {

// A tensor as it is.
template <typename T, bool kIsWide>
struct TensorSource {
  static constexpr bool kWide = kIsWide;
  static constexpr int kAhead = sizeof(T) == 2 ? 2 : 1;
  static constexpr int kBlocks = 4;
  struct Columns {};
  using Words = Raw<T, tile::kWidth>;

  __device__ Columns columns(int64_t, int) const { return {}; }
  __device__ Words load(int64_t row, int64_t column, int count) const {
    return tile::load_elements<T, kWide>(x + row * stride + column, count);
  }
  __device__ void values(const Words& words, const Columns&, float (&out)[tile::kWidth]) const { to_float(words, out); }

  const T* x;
  int64_t stride;
};

template <bool kScaleOfColumn, typename Args>
void quantize(const Args& args, const Float8Output& out, GpuStream stream) {
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    const T* x = static_cast<const T*>(args.x);
    if (tile::allows_wide(out, args.rows, args.dim) && vector_aligned(args.x, args.row_stride, sizeof(T))) {
      tile::launch_tiles<kScaleOfColumn>(TensorSource<T, true>{x, args.row_stride}, out, args.rows, args.dim, stream);
    } else {
      tile::launch_tiles<kScaleOfColumn>(TensorSource<T, false>{x, args.row_stride}, out, args.rows, args.dim, stream);
    }
  });
}

}  // namespace

void quantize_tensor(const QuantizeTensorArgs& args, GpuStream stream) { quantize<false>(args, args.out, stream); }

void quantize_columns(const QuantizeColumnsArgs& args, GpuStream stream) {
  quantize<true>(args, {args.format, true, args.amax, nullptr, args.transposed, args.reciprocals}, stream);
}

}  // namespace titanium::kernels
