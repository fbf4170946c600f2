#include "titanium/checkpoint/io/crc32.h"

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
#define TI_TARGET_128 __attribute__((target("pclmul,sse4.1")))
#define TI_TARGET_512 __attribute__((target("pclmul,sse4.1,avx512f,vpclmulqdq")))

// The checksum is the remainder of the bytes as a polynomial. Four lanes of 128 or 512 bits are moved ahead to the next
// bytes by two carry-less products each, then joined, and the last 128 bits are reduced by Barrett's method. Bits are
// reflected, so a constant is the bit-reversed x^n mod P, shifted left by one: for a distance of d bits, x^(d-32) and
// x^(d+32). `state` is the complement of the checksum.
struct Factors {
  int64_t high, low;
};
constexpr Factors kBy2048 = {0x01322d1430, 0x011542778a}, kBy512 = {0x01c6e41596, 0x0154442bd4},
                  kBy128 = {0x00ccaa009e, 0x01751997d0};

TI_TARGET_128 inline __m128i load_factors(const Factors& by) { return _mm_set_epi64x(by.high, by.low); }

// a * x^distance + next
TI_TARGET_128 inline __m128i fold(__m128i a, __m128i factors, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(a, factors, 0x00);
  const __m128i high = _mm_clmulepi64_si128(a, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// Four lanes that follow each other, to the state.
TI_TARGET_128 inline uint32_t reduce(const __m128i lane[4]) {
  const __m128i by_128 = load_factors(kBy128);
  const __m128i by_64 = _mm_set_epi64x(0, 0x0163cd6124);               // x^64
  const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);  // x^64 / P, P
  const __m128i low_32 = _mm_set_epi32(0, 0, 0, -1);
  __m128i sum = lane[0];
  for (int i = 1; i < 4; ++i) sum = fold(sum, by_128, lane[i]);
  // 128 bits to 64, to 32.
  sum = _mm_xor_si128(_mm_srli_si128(sum, 8), _mm_clmulepi64_si128(sum, by_128, 0x10));
  sum = _mm_xor_si128(_mm_srli_si128(sum, 4), _mm_clmulepi64_si128(_mm_and_si128(sum, low_32), by_64, 0x00));
  __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(sum, low_32), barrett, 0x10);
  quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_32), barrett, 0x00);
  return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(sum, quotient), 1));
}

TI_TARGET_128 uint32_t fold_128(const std::byte* bytes, size_t blocks, uint32_t state) {
  const __m128i by_512 = load_factors(kBy512);
  const auto* data = reinterpret_cast<const __m128i*>(bytes);
  __m128i lane[4];
  for (int i = 0; i < 4; ++i) lane[i] = _mm_loadu_si128(data + i);
  lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128(static_cast<int>(state)));
  for (size_t block = 1; block < blocks; ++block) {
    data += 4;
    for (int i = 0; i < 4; ++i) lane[i] = fold(lane[i], by_512, _mm_loadu_si128(data + i));
  }
  return reduce(lane);
}

TI_TARGET_512 inline __m512i fold(__m512i a, __m512i factors, __m512i next) {
  const __m512i low = _mm512_clmulepi64_epi128(a, factors, 0x00);
  const __m512i high = _mm512_clmulepi64_epi128(a, factors, 0x11);
  return _mm512_xor_si512(_mm512_xor_si512(low, high), next);
}

TI_TARGET_512 uint32_t fold_512(const std::byte* bytes, size_t blocks, uint32_t state) {
  const __m512i by_2048 = _mm512_set4_epi64(kBy2048.high, kBy2048.low, kBy2048.high, kBy2048.low);
  const __m512i by_512 = _mm512_set4_epi64(kBy512.high, kBy512.low, kBy512.high, kBy512.low);
  __m512i lane[4];
  for (int i = 0; i < 4; ++i) lane[i] = _mm512_loadu_si512(bytes + 64 * i);
  lane[0] = _mm512_xor_si512(lane[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
  for (size_t block = 1; block < blocks; ++block) {
    bytes += 256;
    for (int i = 0; i < 4; ++i) lane[i] = fold(lane[i], by_2048, _mm512_loadu_si512(bytes + 64 * i));
  }
  __m512i sum = lane[0];
  for (int i = 1; i < 4; ++i) sum = fold(sum, by_512, lane[i]);
  __m128i narrow[4];
  _mm512_storeu_si512(narrow, sum);
  return reduce(narrow);
}

bool has_128() {
  static const bool has = __builtin_cpu_supports("pclmul") != 0 && __builtin_cpu_supports("sse4.1") != 0;
  return has;
}

bool has_512() {
  static const bool has =
      has_128() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("vpclmulqdq") != 0;
  return has;
}
#endif

}  // namespace

uint32_t crc32(std::span<const std::byte> bytes, uint32_t previous) {
#ifdef __x86_64__
  const auto fold_all = [&](const auto& fold, size_t block) {
    const size_t blocks = bytes.size() / block;
    if (blocks == 0) return;
    previous = ~fold(bytes.data(), blocks, ~previous);
    bytes = bytes.subspan(blocks * block);
  };
  if (has_512()) fold_all(fold_512, 256);
  if (has_128()) fold_all(fold_128, 64);
#endif
  return zlib_crc32(bytes, previous);
}

uint32_t crc32_combine(uint32_t first, uint32_t second, uint64_t size) {
  return static_cast<uint32_t>(::crc32_combine(first, second, static_cast<z_off_t>(size)));
}

}  // namespace titanium::checkpoint
