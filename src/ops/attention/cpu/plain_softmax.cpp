// e^(s − top) = 2^((s − top) · log₂e) with flash's exponential, so that the two are compared by what they do and not by their exp.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention/cpu/plain_softmax.cpp"
#include <hwy/foreach_target.h>
#include "ops/simd_targets.h"

#include <algorithm>
#include <numbers>

#include "ops/attention/cpu/plain_softmax.h"
#include "ops/attention/cpu/tile_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::attention::HWY_NAMESPACE {

RowSum ExponentialsHere(float* s, std::int64_t n) {
  float top = s[0];
  Vec tops = hn::Set(floats, top);
  std::int64_t j = 0;
  for (; j + lanes <= n; j += lanes) tops = hn::Max(tops, hn::LoadU(floats, s + j));
  top = hn::GetLane(hn::MaxOfLanes(floats, tops));
  for (; j < n; ++j) top = std::max(top, s[j]);

  const Vec tops_now = hn::Set(floats, top), log2e = hn::Set(floats, std::numbers::log2e_v<float>);
  const auto power = [&](Vec x) HWY_ATTR { return exp2(hn::Mul(hn::Sub(x, tops_now), log2e)); };
  Vec sums = hn::Zero(floats);
  for (j = 0; j + lanes <= n; j += lanes) {
    const Vec e = power(hn::LoadU(floats, s + j));
    hn::StoreU(e, floats, s + j);
    sums = hn::Add(sums, e);
  }
  float sum = hn::GetLane(hn::SumOfLanes(floats, sums));
  for (; j < n; ++j) sum += s[j] = hn::GetLane(power(hn::Set(floats, s[j])));
  return {top, sum};
}

void CapRowHere(float* s, std::int64_t n, float cap) {
  const Vec up = hn::Set(floats, cap), down = hn::Set(floats, 1 / cap);
  const auto capped = [&](Vec x) HWY_ATTR { return hn::Mul(up, tanh(hn::Mul(down, x))); };
  std::int64_t j = 0;
  for (; j + lanes <= n; j += lanes) hn::StoreU(capped(hn::LoadU(floats, s + j)), floats, s + j);
  for (; j < n; ++j) s[j] = hn::GetLane(capped(hn::Set(floats, s[j])));
}

void SlopeOfCapHere(const float* s, std::int64_t n, float cap, float* ds) {
  const Vec down = hn::Set(floats, 1 / cap);
  const auto slope = [&](Vec x) HWY_ATTR { return slope_of_tanh(tanh(hn::Mul(down, x))); };
  std::int64_t j = 0;
  for (; j + lanes <= n; j += lanes) hn::StoreU(hn::Mul(slope(hn::LoadU(floats, s + j)), hn::LoadU(floats, ds + j)), floats, ds + j);
  for (; j < n; ++j) ds[j] *= hn::GetLane(slope(hn::Set(floats, s[j])));
}

}  // namespace headroom::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::attention {
HWY_EXPORT(ExponentialsHere);
HWY_EXPORT(CapRowHere);
HWY_EXPORT(SlopeOfCapHere);
void cap_row(float* s, std::int64_t n, float cap) { HWY_DYNAMIC_DISPATCH(CapRowHere)(s, n, cap); }
void times_slope_of_cap(const float* s, std::int64_t n, float cap, float* ds) { HWY_DYNAMIC_DISPATCH(SlopeOfCapHere)(s, n, cap, ds); }
RowSum exponentials_of_row(float* s, std::int64_t n) { return HWY_DYNAMIC_DISPATCH(ExponentialsHere)(s, n); }
}  // namespace headroom::attention
#endif
