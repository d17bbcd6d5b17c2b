// How scores are capped on Hopper: score ← cap · tanh(score · scale / cap), of which kernels form the tanh.
#pragma once

namespace headroom::attention::sm90 {

// Up to this cap an absolute error of 3·10⁻⁷ in the tanh is enough: cap · 3·10⁻⁷ in a score is less than a tenth of what rounding a probability to fp16 costs.
// Wider caps take a tanh that is exact to its last places.
constexpr float widest_quick_cap = 64;

struct Capping {
  float by;    // the tanh is taken of a product of q and k times this
  float near;  // where no product of a warp's is larger, a polynomial does
  bool exactly;
  // Backward: the same with `by` inside. tanh of a product x is x · (first + third · x² + fifth · x⁴) near 0, or from 2^(x · exponent).
  float near_in_backward, first, third, fifth, exponent;
};
// What of a cap does not hide beside the products of heads of 256, the only ones that a step trains with it here: as many operations in FP32.
constexpr double operations_of_cap = 25;
constexpr float quick_near = 0.5f, near_folded = 0.31f, exact_near = 0.625f;  // largest arguments of the polynomials
inline Capping capping_of(float scale, float cap) {                           // cap 0: none
  if (cap == 0) return {};
  const bool exactly = cap > widest_quick_cap;
  const float by = scale / cap, square = by * by, widest = cap / scale, near = (exactly ? exact_near : quick_near) * widest;
  const bool folds = by > 1e-5f && by < 1e5f;  // else a power of it is no FP32 number: then no product counts as near
  return {.by = by,
          .near = near,
          .exactly = exactly,
          .near_in_backward = exactly ? near
                              : folds ? near_folded * widest
                                      : -1,
          .first = 0.999995167f * by,
          .third = folds ? -0.332926306f * by * square : 0,
          .fifth = folds ? 0.124703556f * by * square * square : 0,
          .exponent = by * 2.88539008f};
}

}  // namespace headroom::attention::sm90
