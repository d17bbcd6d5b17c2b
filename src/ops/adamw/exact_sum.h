// ExactSum — a sum of FP32 values, or of FP64 sums of such, in fixed point: wide enough that nothing is rounded, so the order of additions
// does not matter and the bits depend neither on threads nor on ranks. Plain 64-bit additions: parts may be added limb by limb.
#pragma once
#include <cstdint>

#include "base/convert.h"

namespace headroom::adamw {

struct ExactSum {
  // Limb i counts units of 2^(32 i − 160): FP32's smallest number is 2^−149, and 2^160 is left at the top. Each addition puts less than
  // 2^32 into a limb, so 2^31 of them are safe. The last limb counts values that are not finite.
  static constexpr int digits = 10, limbs = digits + 1;

  HEADROOM_CONVERT static void add(std::int64_t* limb, double x) {  // x ≥ 0; from 2^146 on it counts as infinite
    std::uint64_t bits;
    memcpy(&bits, &x, sizeof x);
    const int exponent = int(bits >> 52 & 0x7ff);
    if (exponent == 0) return;  // zero: a sum of FP32 values is never as small as FP64's subnormal numbers
    if (exponent > 1023 + 146) {
      ++limb[digits];
      return;
    }
    const std::uint64_t mantissa = (bits & 0xfffffffffffffull) | 1ull << 52;
    const int from = exponent - 1075 + 160;  // x = mantissa · 2^(exponent − 1075)
    if (from < 0) {                          // the bits that fall away are zero: x is a multiple of 2^−149
      limb[0] += std::int64_t(from > -53 ? mantissa >> -from : 0);
      return;
    }
    const int at = from / 32, shift = from % 32;
    const std::uint64_t low = mantissa << shift, high = shift ? mantissa >> (64 - shift) : 0;
    limb[at] += std::int64_t(low & 0xffffffffu);
    limb[at + 1] += std::int64_t(low >> 32);
    if (high) limb[at + 2] += std::int64_t(high);
  }

  // The value of `parts` sums together; they are in memory one after the other.
  HEADROOM_CONVERT static double value(const std::int64_t* limb, int parts) {
    std::int64_t total[limbs] = {};
    for (int p = 0; p < parts; ++p)
      for (int i = 0; i < limbs; ++i) total[i] += limb[p * limbs + i];
    if (total[digits] != 0) return double(float_of(0x7f800000u));  // infinite
    for (int i = 0; i + 1 < digits; ++i) {
      total[i + 1] += total[i] >> 32;
      total[i] &= 0xffffffff;
    }
    double sum = 0;
    for (int i = digits - 1; i >= 0; --i) sum = sum * 0x1p32 + double(total[i]);
    return sum * 0x1p-160;
  }
};

}  // namespace headroom::adamw
