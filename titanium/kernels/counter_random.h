// Random numbers as a function of (key, index): no state, so that any rank can make any part of a tensor, and every
// device makes the same bits.
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__CUDACC__) || defined(__HIP__)
#define TI_HOST_DEVICE __host__ __device__
#else
#define TI_HOST_DEVICE
#endif

namespace titanium::kernels {

// Note [Same bits on every device]
// Initial weights are made on whatever device trains. To get the same bits everywhere, the functions below use only
// operations that IEEE 754 rounds exactly (+ - * / sqrt, in double) and never let a compiler fuse a product and a sum:
// on the device through intrinsics, on the host through -ffp-contract=off.
TI_HOST_DEVICE inline double exact_mul(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

TI_HOST_DEVICE inline double exact_add(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dadd_rn(a, b);
#else
  return a + b;
#endif
}

// 64 random bits: half of the block that Philox 4x32-10 (Salmon et al., 2011) makes of counter index/2.
TI_HOST_DEVICE inline uint64_t random_bits(uint64_t key, uint64_t index) {
  const uint64_t counter = index >> 1;
  uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32), c2 = 0, c3 = 0;
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * c0;
    const uint64_t product1 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(product0);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return (index & 1) == 0 ? (uint64_t{c1} << 32 | c0) : (uint64_t{c3} << 32 | c2);
}

// Uniform in the open interval (0, 1), from the upper 52 bits.
TI_HOST_DEVICE inline double random_uniform(uint64_t key, uint64_t index) {
  return (static_cast<double>(random_bits(key, index) >> 12) + 0.5) * 0x1p-52;
}

TI_HOST_DEVICE inline double polynomial(const double (&coefficients)[8], double x) {
  double sum = coefficients[7];
  for (int i = 6; i >= 0; --i) sum = exact_add(exact_mul(sum, x), coefficients[i]);
  return sum;
}

// Natural logarithm of x in (0, 1), to about one unit in the last place.
TI_HOST_DEVICE inline double exact_log(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);  // [0.5, 1)
  if (mantissa < 0.70710678118654752) {
    mantissa = exact_mul(mantissa, 2);
    --exponent;
  }
  const double s = exact_add(mantissa, -1) / exact_add(mantissa, 1);
  const double s2 = exact_mul(s, s);
  double series = 0;
  for (int n = 23; n >= 3; n -= 2) series = exact_mul(exact_add(series, 1.0 / n), s2);
  const double log_mantissa = exact_mul(exact_mul(2, s), exact_add(series, 1));
  return exact_add(exact_mul(exponent, 0.69314718055994531), log_mantissa);
}

// The standard normal quantile of p in (0, 1): algorithm AS 241, PPND16 (Wichura, 1988), relative error 1e-16.
TI_HOST_DEVICE inline double normal_quantile(double p) {
  constexpr double kA[8] = {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
                            1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
                            3.3430575583588128105e4, 2.5090809287301226727e3};
  constexpr double kB[8] = {1.0,
                            4.2313330701600911252e1,
                            6.8718700749205790830e2,
                            5.3941960214247511077e3,
                            2.1213794301586595867e4,
                            3.9307895800092710610e4,
                            2.8729085735721942674e4,
                            5.2264952788528545610e3};
  constexpr double kC[8] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                            3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                            2.27238449892691845833e-2, 7.74545014278341407640e-4};
  constexpr double kD[8] = {1.0,
                            2.05319162663775882187e0,
                            1.67638483018380384940e0,
                            6.89767334985100004550e-1,
                            1.48103976427480074590e-1,
                            1.51986665636164571966e-2,
                            5.47593808499534494600e-4,
                            1.05075007164441684324e-9};
  constexpr double kE[8] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                            2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                            2.71155556874348757815e-5, 2.01033439929228813265e-7};
  constexpr double kF[8] = {1.0,
                            5.99832206555887937690e-1,
                            1.36929880922735805310e-1,
                            1.48753612908506148525e-2,
                            7.86869131145613259100e-4,
                            1.84631831751005468180e-5,
                            1.42151175831644588870e-7,
                            2.04426310338993978564e-15};
  const double q = exact_add(p, -0.5);
  if (std::fabs(q) <= 0.425) {
    const double r = exact_add(0.180625, -exact_mul(q, q));
    return exact_mul(q, polynomial(kA, r) / polynomial(kB, r));
  }
  const double r = std::sqrt(-exact_log(q < 0 ? p : exact_add(1, -p)));
  const double tail = r <= 5 ? polynomial(kC, exact_add(r, -1.6)) / polynomial(kD, exact_add(r, -1.6))
                             : polynomial(kE, exact_add(r, -5)) / polynomial(kF, exact_add(r, -5));
  return q < 0 ? -tail : tail;
}

// A normal distribution around 0, cut at +-cutoff (absolute). Build with `truncated_normal`.
struct NormalDistribution {
  double std;
  double lowest;  // probabilities of the standard normal below the lower cut-off, and between the two
  double width;
};

// Cut-offs beyond 8 standard deviations change nothing in double precision.
inline NormalDistribution truncated_normal(double std, double cutoff) {
  const double lowest = 0.5 * std::erfc(cutoff / std / std::sqrt(2.0));
  return {std, lowest, 1 - 2 * lowest};
}

TI_HOST_DEVICE inline float sample_normal(const NormalDistribution& distribution, uint64_t key, uint64_t index) {
  const double p = exact_add(distribution.lowest, exact_mul(distribution.width, random_uniform(key, index)));
  return static_cast<float>(exact_mul(distribution.std, normal_quantile(p)));
}

}  // namespace titanium::kernels
