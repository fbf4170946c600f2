// Pairs of elements as complex numbers, multiplied by entries of a table of cosines and sines or by their conjugates.
#pragma once

namespace titanium::kernels {

// Neighbours are pairs.
template <int N>
__device__ void rotate(float (&values)[N], const float (&table)[N], bool inverse) {
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const float real = values[i], imaginary = values[i + 1];
    const float cosine = table[i], sine = inverse ? -table[i + 1] : table[i + 1];
    values[i] = real * cosine - imaginary * sine;
    values[i + 1] = real * sine + imaginary * cosine;
  }
}

// The real parts lie in one half of a head, the imaginary ones in the other.
template <int N>
__device__ void rotate_halves(float (&real)[N], float (&imaginary)[N], const float (&table)[2 * N], bool inverse) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float x = real[i], y = imaginary[i];
    const float cosine = table[2 * i], sine = inverse ? -table[2 * i + 1] : table[2 * i + 1];
    real[i] = x * cosine - y * sine;
    imaginary[i] = x * sine + y * cosine;
  }
}

}  // namespace titanium::kernels
