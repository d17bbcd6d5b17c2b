// The exponential under flash, for every instruction set: how wrong it gets, and what it does at the ends.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/ops/attention/exp2_test.cpp"
#include <hwy/foreach_target.h>
#include "ops/simd_targets.h"

#include "ops/attention/cpu/tile_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::attention::HWY_NAMESPACE {

void Exp2Here(const float* from, float* to, long count) {
  for (long i = 0; i < count; i += lanes) hn::StoreU(exp2(hn::LoadU(floats, from + i)), floats, to + i);
}

}  // namespace headroom::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/convert.h"

namespace headroom::attention {

HWY_EXPORT(Exp2Here);

namespace {

std::vector<float> exp2_of(std::vector<float> x) {
  const auto count = x.size();
  x.resize((count + 63) / 64 * 64, 0.0f);
  std::vector<float> y(x.size());
  HWY_DYNAMIC_DISPATCH(Exp2Here)(x.data(), y.data(), long(x.size()));
  y.resize(count);
  return y;
}

TEST(AttentionExp2, ErrorIsSmallAndUnbiased) {
  const auto mine = hwy::SupportedTargets() & HWY_TARGETS;
  for (std::int64_t rest = mine; rest; rest &= rest - 1) {
    hwy::SetSupportedTargetsForTest(rest & -rest);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    std::vector<float> x;
    for (std::uint32_t u = bits_of(-126.0f); u > bits_of(-1e-9f); u -= 1009) x.push_back(float_of(u));
    for (std::uint32_t u = bits_of(1e-9f); u < bits_of(126.0f); u += 1009) x.push_back(float_of(u));
    const auto y = exp2_of(x);
    double worst = 0, sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp2(double(x[i])), e = (y[i] - exact) / exact;
      worst = std::max(worst, std::abs(e)), sum += e;
    }
    EXPECT_LT(worst, 2.3e-7) << hwy::TargetName(rest & -rest);
    std::printf("%s: worst %.3g, mean %.2g\n", hwy::TargetName(rest & -rest), worst, sum / double(x.size()));
    EXPECT_LT(std::abs(sum) / double(x.size()), 3e-8);
    RecordProperty("worst_relative_error_1e10", int(worst * 1e10));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(AttentionExp2, Ends) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto y = exp2_of({0.0f, 1.0f, -1.0f, 10.0f, -126.0f, -126.5f, -1000.0f, -1e30f, -infinity, float_of(0x7fc00000),
                          float_of(0x7fc00001), float_of(0xffffffff)});
  const float expected[] = {1.0f, 2.0f, 0.5f, 1024.0f, 0x1p-126f, 0, 0, 0, 0};
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(y[i], expected[i]) << i;
  for (std::size_t i = 9; i < 12; ++i) EXPECT_TRUE(std::isnan(y[i])) << i;
}

}  // namespace
}  // namespace headroom::attention
#endif
