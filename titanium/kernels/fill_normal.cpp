#include "titanium/kernels/fill_normal.h"

#include <cstring>

namespace titanium::kernels {
namespace {

// Round to nearest even; a sample is never NaN.
uint16_t to_bfloat16(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

}  // namespace

void fill_normal_on_cpu(const FillNormalArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const uint64_t first = args.first + static_cast<uint64_t>(row) * args.row_stride;
    for (int64_t column = 0; column < args.columns; ++column) {
      const float value = sample_normal(args.distribution, args.key, first + column);
      const int64_t index = row * args.columns + column;
      if (args.bfloat16) {
        static_cast<uint16_t*>(args.out)[index] = to_bfloat16(value);
      } else {
        static_cast<float*>(args.out)[index] = value;
      }
    }
  }
}

}  // namespace titanium::kernels
