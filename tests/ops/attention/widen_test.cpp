// Flash widens 16-bit rows with Highway rather than with convert.h: every code of bf16 and fp16, for every instruction set, must give
// the same number.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/ops/attention/widen_test.cpp"
#include <hwy/foreach_target.h>
#include "ops/simd_targets.h"

#include "ops/attention/cpu/tile_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::attention::HWY_NAMESPACE {

void WidenBf16Here(const Rows& from, float* to, std::int64_t count) { widen_rows<bf16>(from, 0, 1, 1, count, count, to); }
void WidenF16Here(const Rows& from, float* to, std::int64_t count) { widen_rows<f16>(from, 0, 1, 1, count, count, to); }

}  // namespace headroom::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace headroom::attention {

HWY_EXPORT(WidenBf16Here);
HWY_EXPORT(WidenF16Here);

namespace {

template <class T, class Widen>
void expect_all_codes(Widen highway) {
  constexpr std::int64_t codes = 1 << 16;
  std::vector<T> from(codes);
  for (std::int64_t i = 0; i < codes; ++i) from[std::size_t(i)] = T{std::uint16_t(i)};
  const auto mine = hwy::SupportedTargets() & HWY_TARGETS;
  for (std::int64_t rest = mine; rest; rest &= rest - 1) {
    hwy::SetSupportedTargetsForTest(rest & -rest);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    std::vector<float> to(codes);
    highway({from.data(), codes}, to.data(), codes);
    int wrong = 0;
    for (std::int64_t i = 0; i < codes; ++i) {
      const float expected = widen(from[std::size_t(i)]), got = to[std::size_t(i)];
      const bool same = std::isnan(expected) ? std::isnan(got) : bits_of(expected) == bits_of(got);
      if (!same && ++wrong < 4) ADD_FAILURE() << hwy::TargetName(rest & -rest) << " code " << i << ": " << got << ", not " << expected;
    }
    EXPECT_EQ(wrong, 0) << hwy::TargetName(rest & -rest);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(AttentionWiden, EveryBf16IsWhatConvertSays) {
  expect_all_codes<bf16>([](const flash_cpu::Rows& from, float* to, std::int64_t count) {
    HWY_DYNAMIC_DISPATCH(WidenBf16Here)(from, to, count);
  });
}

TEST(AttentionWiden, EveryF16IsWhatConvertSays) {
  expect_all_codes<f16>([](const flash_cpu::Rows& from, float* to, std::int64_t count) {
    HWY_DYNAMIC_DISPATCH(WidenF16Here)(from, to, count);
  });
}

}  // namespace
}  // namespace headroom::attention
#endif
