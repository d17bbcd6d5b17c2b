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
};
// What of a cap does not hide beside the products of heads of 256, the only ones that a step trains with it here: as many operations in FP32.
constexpr double operations_of_cap = 25;
constexpr float quick_near = 0.5f, exact_near = 0.625f;  // largest arguments of the two polynomials
inline Capping capping_of(float scale, float cap) {      // cap 0: none
  if (cap == 0) return {};
  const bool exactly = cap > widest_quick_cap;
  return {scale / cap, (exactly ? exact_near : quick_near) * (cap / scale), exactly};
}

}  // namespace headroom::attention::sm90
