// The register kernel under flash on the CPU: a small block of C = or += A · B, one broadcast of A against `vectors` vectors of B.
//
// Registers: rows × vectors accumulators, `vectors` of B, one of A. AVX-512 has 32: 8 × 2 = 16 accumulators hide the FMA's latency
// of 4 on machines that start two a cycle with room for 8; 10 loads serve 16 FMAs, so the load ports are not the limit. AVX2 and
// older have 16: 4 × 2 … 8 accumulators and 6 loads for 8 FMAs. Both divide 8, so rows are padded to 8 everywhere.
// Included once per instruction set (Highway's foreach_target).
#if defined(HEADROOM_TILE_PRODUCT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADROOM_TILE_PRODUCT_INL_H
#undef HEADROOM_TILE_PRODUCT_INL_H
#else
#define HEADROOM_TILE_PRODUCT_INL_H
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace headroom::attention::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;
using Vec = hn::Vec<Floats>;
constexpr Floats floats{};
constexpr int lanes = int(hn::MaxLanes(floats));

constexpr int block_vectors = 2;                    // vectors in a block's width
constexpr int block_width = block_vectors * lanes;  // queries in forward, keys in backward
constexpr int register_rows = lanes >= 16 ? 8 : 4;

enum class A { by_rows, by_columns };  // a(row, i) lies at a[row · pitch + i] or at a[i · pitch + row]

struct Left {
  const float* data;
  std::int64_t pitch;
};
struct Right {  // b(i, …) lies at data + i · pitch
  const float* data;
  std::int64_t pitch;
};
struct Result {
  float* data;
  std::int64_t pitch;
};

template <A order, int vectors, bool accumulate>
HWY_INLINE void register_block(std::int64_t depth, Left a, Right b, Result c) {
  Vec sum[register_rows][vectors];
  for (int r = 0; r < register_rows; ++r)
    for (int v = 0; v < vectors; ++v) sum[r][v] = accumulate ? hn::LoadU(floats, c.data + r * c.pitch + v * lanes) : hn::Zero(floats);
  const float* bi = b.data;
  const float* ai = a.data;
#pragma GCC unroll 2
  for (std::int64_t i = 0; i < depth; ++i) {
    Vec right[vectors];
    for (int v = 0; v < vectors; ++v) right[v] = hn::LoadU(floats, bi + v * lanes);
    for (int r = 0; r < register_rows; ++r) {
      const Vec left = hn::Set(floats, order == A::by_rows ? ai[r * a.pitch] : ai[r]);
      for (int v = 0; v < vectors; ++v) sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
    }
    bi += b.pitch;
    ai += order == A::by_rows ? 1 : a.pitch;
  }
  for (int r = 0; r < register_rows; ++r)
    for (int v = 0; v < vectors; ++v) hn::StoreU(sum[r][v], floats, c.data + r * c.pitch + v * lanes);
}

// rows: a multiple of register_rows.
template <A order, int vectors, bool accumulate>
HWY_NOINLINE void tile_product(std::int64_t rows, std::int64_t depth, Left a, Right b, Result c) {
  for (std::int64_t r = 0; r < rows; r += register_rows) {
    const Left from{a.data + (order == A::by_rows ? r * a.pitch : r), a.pitch};
    register_block<order, vectors, accumulate>(depth, from, b, {c.data + r * c.pitch, c.pitch});
  }
}

// 2^x for x ≤ 127, x = n + f, |f| ≤ ½: a polynomial in f, then n into the exponent. Below 2⁻¹²⁶ the result is 0; NaN stays NaN.
// The polynomial is the minimax of degree 5 among those with 2^0 = 1: relative error 1.1e-7, plus rounding (bench/lab/attention_cpu.md).
HWY_INLINE Vec exp2(Vec x) {
  const Vec shifter = hn::Set(floats, 0x1.8p23f);  // adding it rounds to an integer that then lies in the low bits
  const Vec shifted = hn::Add(x, shifter);
  const Vec f = hn::Sub(x, hn::Sub(shifted, shifter));
  Vec y = hn::Set(floats, 1.326472731e-3f);
  y = hn::MulAdd(y, f, hn::Set(floats, 9.671512991e-3f));
  y = hn::MulAdd(y, f, hn::Set(floats, 5.550733581e-2f));
  y = hn::MulAdd(y, f, hn::Set(floats, 2.402224243e-1f));
  y = hn::MulAdd(y, f, hn::Set(floats, 6.931470037e-1f));
  y = hn::MulAdd(y, f, hn::Set(floats, 1.0f));
  const hn::RebindToSigned<Floats> ints;
  const Vec scaled = hn::BitCast(floats, hn::Add(hn::BitCast(ints, y), hn::ShiftLeft<23>(hn::BitCast(ints, shifted))));
  return hn::IfThenElse(hn::Ge(x, hn::Set(floats, -126.0f)), scaled, hn::Max(hn::Zero(floats), x));
}

// tanh x. Near 0 an odd polynomial (so that a wide cap loses nothing), else 1 − 2 / (e^2x + 1); error below 3 units in the last place.
HWY_INLINE Vec tanh(Vec x) {
  const Vec size = hn::Abs(x), square = hn::Mul(x, x);
  Vec y = hn::Set(floats, -5.70498872745e-3f);
  y = hn::MulAdd(y, square, hn::Set(floats, 2.06390887954e-2f));
  y = hn::MulAdd(y, square, hn::Set(floats, -5.37397155531e-2f));
  y = hn::MulAdd(y, square, hn::Set(floats, 1.33314422036e-1f));
  y = hn::MulAdd(y, square, hn::Set(floats, -3.33332819422e-1f));
  const Vec near_zero = hn::MulAdd(hn::Mul(y, square), x, x);
  const Vec e = exp2(hn::Min(hn::Mul(size, hn::Set(floats, 2.88539008f)), hn::Set(floats, 60.0f))), one = hn::Set(floats, 1.0f);
  const Vec far = hn::CopySign(hn::Sub(one, hn::Div(hn::Set(floats, 2.0f), hn::Add(e, one))), x);
  const Vec right = hn::IfThenElse(hn::Lt(size, hn::Set(floats, 0.625f)), near_zero, far);
  return hn::IfThenElse(hn::Eq(x, x), right, x);  // a NaN stays one
}
HWY_INLINE Vec slope_of_tanh(Vec t) {  // 1 − t², from t
  const Vec one = hn::Set(floats, 1.0f);
  return hn::Mul(hn::Sub(one, t), hn::Add(one, t));
}

}  // namespace headroom::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
