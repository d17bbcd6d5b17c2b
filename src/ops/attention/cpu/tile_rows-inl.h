// Rows of Q, K, V and dO on their way into flash's scratch: widened to FP32 and padded with zeros, turned into columns — and results on
// their way out.
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
#include <cstring>
#include <limits>
#include <numbers>
#include <type_traits>
#include <utility>

#include "base/convert.h"
#include "ops/attention/cpu/flash.h"
#include "ops/attention/cpu/tile_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::attention::HWY_NAMESPACE {

using namespace flash_cpu;

// Rows [row, row + rows) become to[0 … whole)[pitch]; past the last row and the last dimension stands 0.
template <class T>
void widen_rows(const Rows& from, std::int64_t row, std::int64_t rows, std::int64_t whole, std::int64_t dim, std::int64_t pitch,
                float* to) {
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
      } else if constexpr (HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128) {  // Highway's way in software takes infinity for 65536
        for (std::int64_t lane = 0; lane < step; ++lane) to[i * pitch + d + lane] = widen(at[d + lane]);
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

// Rows [0, rows) of an FP32 scratch leave for the tensor, rounded once.
template <class T>
void narrow_rows(const float* from, std::int64_t pitch, const Rows& to, std::int64_t row, std::int64_t rows, std::int64_t dim) {
  for (std::int64_t i = 0; i < rows; ++i) {
    T* at = static_cast<T*>(to.data) + (row + i) * to.stride;
    for (std::int64_t d = 0; d < dim; ++d) at[d] = narrow<T>(from[i * pitch + d]);
  }
}

constexpr int quad = HWY_TARGET == HWY_SCALAR ? 1 : 4;  // columns that are turned at a time

// Four vectors as 4 × 4 squares, one in each 128 bits: every square is transposed.
HWY_INLINE void transpose_quads(Vec (&x)[quad]) {
#if HWY_TARGET != HWY_SCALAR
  const Vec even = hn::InterleaveLower(floats, x[0], x[2]), odd = hn::InterleaveLower(floats, x[1], x[3]);
  const Vec even_up = hn::InterleaveUpper(floats, x[0], x[2]), odd_up = hn::InterleaveUpper(floats, x[1], x[3]);
  x[0] = hn::InterleaveLower(floats, even, odd);
  x[1] = hn::InterleaveUpper(floats, even, odd);
  x[2] = hn::InterleaveLower(floats, even_up, odd_up);
  x[3] = hn::InterleaveUpper(floats, even_up, odd_up);
#else
  (void)x;  // a square of one
#endif
}

// to[d][i] = factor · from[i][d] for d < columns and i < rows, a multiple of the vector; both lie in scratch with columns to spare.
HWY_INLINE void columns_of(const float* from, std::int64_t from_pitch, std::int64_t rows, std::int64_t columns, float factor, float* to,
                           std::int64_t to_pitch) {
  const Vec f = hn::Set(floats, factor);
  HWY_ALIGN float gathered[quad * lanes];
  for (std::int64_t i = 0; i < rows; i += lanes)
    for (std::int64_t d = 0; d < columns; d += quad) {
      Vec x[quad];
      for (int r = 0; r < lanes; ++r)  // row 4b + k gives vector k its square b
        memcpy(gathered + r % quad * lanes + r / quad * quad, from + (i + r) * from_pitch + d, sizeof(float) * quad);
      for (int k = 0; k < quad; ++k) x[k] = hn::Load(floats, gathered + k * lanes);
      transpose_quads(x);
      for (int k = 0; k < quad; ++k) hn::StoreU(hn::Mul(f, x[k]), floats, to + (d + k) * to_pitch + i);
    }
}

// to[i][d] = factors[i] · from[d][i]: the way back. Null factors: 1.
HWY_INLINE void rows_of_columns(const float* from, std::int64_t from_pitch, std::int64_t rows, std::int64_t columns, const float* factors,
                                float* to, std::int64_t to_pitch) {
  HWY_ALIGN float scattered[quad * lanes];
  for (std::int64_t i = 0; i < rows; i += lanes)
    for (std::int64_t d = 0; d < columns; d += quad) {
      Vec x[quad];
      for (int k = 0; k < quad; ++k) {
        x[k] = hn::LoadU(floats, from + (d + k) * from_pitch + i);
        if (factors) x[k] = hn::Mul(x[k], hn::LoadU(floats, factors + i));
      }
      transpose_quads(x);
      for (int k = 0; k < quad; ++k) hn::Store(x[k], floats, scattered + k * lanes);
      for (int r = 0; r < lanes; ++r)
        memcpy(to + (i + r) * to_pitch + d, scattered + r % quad * lanes + r / quad * quad, sizeof(float) * quad);
    }
}

}  // namespace headroom::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
