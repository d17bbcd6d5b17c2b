// Shared by the row-wise ops on the CPU: exp, sigmoid, and sums and maxima in vector lanes.
// Included once per instruction set (Highway's foreach_target). Plain loops, which the compiler vectorises for that set.
// Bits depend on the instruction set, not on the number of threads: one thread sums a row, always in the same order.
#if defined(HEADROOM_ROWS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADROOM_ROWS_INL
#undef HEADROOM_ROWS_INL
#else
#define HEADROOM_ROWS_INL
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "base/convert.h"

HWY_BEFORE_NAMESPACE();
namespace headroom {
namespace HWY_NAMESPACE {

using std::int64_t;

// e^x to 2 units in the last place; below −87.3 it is 0, above 88.7 infinity, NaN stays NaN.
inline float exp_of(float x) {
  const float bounded = x >= -87.3f ? (x > 88.7f ? 88.7f : x) : -87.3f;  // of NaN, too: an int has none
  const float n = std::floor(bounded * std::numbers::log2e_v<float> + 0.5f);
  const float r = (bounded - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
  float p = 1.9875691500e-4f;                                         // Cephes expf
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const float half = float_of(std::uint32_t(std::int32_t(n * 0.5f) + 127) << 23);  // 2ⁿ in two factors: n may be 128
  const float rest = float_of(std::uint32_t(std::int32_t(n) - std::int32_t(n * 0.5f) + 127) << 23);
  const float y = p * half * rest;
  return x < -87.3f ? 0.0f : x > 88.7f ? std::numeric_limits<float>::infinity() : x == x ? y : x;
}

inline float sigmoid(float x) { return 1.0f / (1.0f + exp_of(-x)); }

constexpr int64_t lanes = 16;

template <class Term>
inline float sum_over(int64_t n, Term term) {
  float part[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int64_t l = 0; l < lanes; ++l) part[l] += term(i + l);
  for (int64_t l = 0; i < n; ++i, ++l) part[l] += term(i);
  for (int64_t width = lanes / 2; width > 0; width /= 2)
    for (int64_t l = 0; l < width; ++l) part[l] += part[l + width];
  return part[0];
}

inline float max_over(int64_t n, const float* x) {
  float part[lanes];
  for (int64_t l = 0; l < lanes; ++l) part[l] = -std::numeric_limits<float>::infinity();
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int64_t l = 0; l < lanes; ++l) part[l] = part[l] > x[i + l] ? part[l] : x[i + l];
  for (int64_t l = 0; i < n; ++i, ++l) part[l] = part[l] > x[i] ? part[l] : x[i];
  for (int64_t l = 1; l < lanes; ++l) part[0] = part[0] > part[l] ? part[0] : part[l];
  return part[0];
}

}  // namespace HWY_NAMESPACE
}  // namespace headroom
HWY_AFTER_NAMESPACE();
#endif
