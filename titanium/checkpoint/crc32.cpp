#include "titanium/checkpoint/crc32.h"

#include <zlib.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace titanium::checkpoint {
namespace {

uint32_t zlib_crc32(std::span<const std::byte> bytes, uint32_t previous) {
  return static_cast<uint32_t>(::crc32_z(previous, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

#ifdef __x86_64__
constexpr size_t kBlock = 64;

// a * x^distance + next, for the two distances whose remainders modulo the polynomial are the halves of `factors`.
__attribute__((target("pclmul,sse4.1"))) inline __m128i fold(__m128i a, __m128i factors, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(a, factors, 0x00);
  const __m128i high = _mm_clmulepi64_si128(a, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// The checksum is the remainder of the bytes as a polynomial. Four lanes of 128 bits are moved 512 bits ahead by two
// carry-less products each, then joined, and the last 128 bits are reduced by Barrett's method. Bits are reflected, so
// a constant is the bit-reversed x^n mod P, shifted left by one. `state` is the complement of the checksum.
__attribute__((target("pclmul,sse4.1"))) uint32_t fold_blocks(const std::byte* bytes, size_t blocks, uint32_t state) {
  const __m128i by_512 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);   // x^(512-32), x^(512+32)
  const __m128i by_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);   // x^(128-32), x^(128+32)
  const __m128i by_64 = _mm_set_epi64x(0, 0x0163cd6124);               // x^64
  const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);  // x^64 / P, P
  const __m128i low_32 = _mm_set_epi32(0, 0, 0, -1);
  const auto* data = reinterpret_cast<const __m128i*>(bytes);

  __m128i lane[4];
  for (int i = 0; i < 4; ++i) lane[i] = _mm_loadu_si128(data + i);
  lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128(static_cast<int>(state)));
  for (size_t block = 1; block < blocks; ++block) {
    data += 4;
    for (int i = 0; i < 4; ++i) lane[i] = fold(lane[i], by_512, _mm_loadu_si128(data + i));
  }
  __m128i sum = lane[0];
  for (int i = 1; i < 4; ++i) sum = fold(sum, by_128, lane[i]);

  // 128 bits to 64, to 32.
  sum = _mm_xor_si128(_mm_srli_si128(sum, 8), _mm_clmulepi64_si128(sum, by_128, 0x10));
  sum = _mm_xor_si128(_mm_srli_si128(sum, 4), _mm_clmulepi64_si128(_mm_and_si128(sum, low_32), by_64, 0x00));
  __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(sum, low_32), barrett, 0x10);
  quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_32), barrett, 0x00);
  return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(sum, quotient), 1));
}

bool has_carryless_product() {
  static const bool has = __builtin_cpu_supports("pclmul") != 0 && __builtin_cpu_supports("sse4.1") != 0;
  return has;
}
#endif

}  // namespace

uint32_t crc32(std::span<const std::byte> bytes, uint32_t previous) {
#ifdef __x86_64__
  if (const size_t blocks = bytes.size() / kBlock; blocks > 0 && has_carryless_product()) {
    previous = ~fold_blocks(bytes.data(), blocks, ~previous);
    bytes = bytes.subspan(blocks * kBlock);
  }
#endif
  return zlib_crc32(bytes, previous);
}

uint32_t crc32_combine(uint32_t first, uint32_t second, uint64_t size) {
  return static_cast<uint32_t>(::crc32_combine(first, second, static_cast<z_off_t>(size)));
}

}  // namespace titanium::checkpoint
