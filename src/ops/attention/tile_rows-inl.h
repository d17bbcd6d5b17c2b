// Rows of Q, K, V and dO on their way into flash's scratch: widened to FP32, padded with zeros, or transposed and scaled.
// Included once per instruction set (Highway's foreach_target).
#if defined(HEADROOM_TILE_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADROOM_TILE_ROWS_INL_H
#undef HEADROOM_TILE_ROWS_INL_H
#else
#define HEADROOM_TILE_ROWS_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <type_traits>
#include <utility>

#include "base/convert.h"
#include "ops/attention/flash_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::attention::HWY_NAMESPACE {

using namespace flash_cpu;

// Rows [row, row + rows) become to[0 … whole)[pitch]; past the last row and the last dimension stands 0.
template <class T>
void widen_rows(const Rows& from, std::int64_t row, std::int64_t rows, std::int64_t whole, std::int64_t dim, std::int64_t pitch, float* to) {
  const hn::ScalableTag<float> d32;
  const auto step = std::int64_t(hn::Lanes(d32));
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* at = static_cast<const T*>(from.data) + (row + i) * from.stride;
    std::int64_t d = 0;
    for (; d + step <= dim; d += step) {
      if constexpr (std::is_same_v<T, float>) {
        hn::StoreU(hn::LoadU(d32, at + d), d32, to + i * pitch + d);
      } else if constexpr (std::is_same_v<T, bf16>) {
        const hn::Rebind<std::uint16_t, decltype(d32)> d16;
        const hn::RebindToUnsigned<decltype(d32)> u32;
        const auto wide = hn::PromoteTo(u32, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(at + d)));
        hn::StoreU(hn::BitCast(d32, hn::ShiftLeft<16>(wide)), d32, to + i * pitch + d);
      } else {
        const hn::Rebind<hwy::float16_t, decltype(d32)> d16;
        hn::StoreU(hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(at + d))), d32, to + i * pitch + d);
      }
    }
    for (; d < dim; ++d) to[i * pitch + d] = widen(at[d]);
    for (; d < pitch; ++d) to[i * pitch + d] = 0;
  }
  std::fill_n(to + rows * pitch, (whole - rows) * pitch, 0.0f);
}

// to[d][i] = factor · row i, for d < dim and i < width; 0 past the last row.
template <class T>
void transpose_rows(const Rows& from, std::int64_t row, std::int64_t rows, std::int64_t dim, std::int64_t width, float factor, float* to) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* at = static_cast<const T*>(from.data) + (row + i) * from.stride;
    for (std::int64_t d = 0; d < dim; ++d) to[d * width + i] = factor * widen(at[d]);
  }
  for (std::int64_t i = rows; i < width; ++i)
    for (std::int64_t d = 0; d < dim; ++d) to[d * width + i] = 0;
}

}  // namespace headroom::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
