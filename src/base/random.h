// Counter-based random numbers: value i of a stream depends on (seed, i) alone, so threads may produce any part in any order. The
// bits are the same on every CPU and GPU: nothing here calls a maths library, and GPU code is compiled without contraction.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>

#include "base/convert.h"

namespace headroom {

struct Random {
  std::uint64_t seed = 0;

  HEADROOM_CONVERT std::uint64_t bits(std::uint64_t i) const {  // splitmix64 of a seed-dependent sequence
    std::uint64_t z = mix(seed + 0x9e3779b97f4a7c15ull) + i * 0x9e3779b97f4a7c15ull;
    return mix(z);
  }
  HEADROOM_CONVERT double uniform(std::uint64_t i) const { return double(bits(i) >> 11) * 0x1p-53; }  // [0, 1)
  std::uint64_t below(std::uint64_t i, std::uint64_t n) const {                                       // 0 … n-1
    return std::uint64_t((unsigned __int128)bits(i) * n >> 64);
  }
  HEADROOM_CONVERT float normal(std::uint64_t i) const {  // Box–Muller, one of the pair
    const double u = 1.0 - uniform(2 * i), v = uniform(2 * i + 1);
    return float(std::sqrt(-2.0 * log_of(u)) * cos_of_turn(v));
  }
  HEADROOM_CONVERT Random stream(std::uint64_t id) const { return {mix(seed ^ mix(id + 0xd1b54a32d192ed03ull))}; }

 private:
  HEADROOM_CONVERT static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }

  // ln u of a normal u > 0, to 2 units in the last place: u = m·2ᵉ with m about 1, ln m = 2 artanh s = 2 (s + s³/3 + s⁵/5 + …).
  HEADROOM_CONVERT static double log_of(double u) {
    constexpr std::uint64_t root_half = 0x3fe6a09e667f3bcd;  // √½: m is in [√½, √2)
    std::uint64_t bits;
    memcpy(&bits, &u, 8);
    bits += 0x3ff0000000000000 - root_half;
    const double e = double(int(bits >> 52) - 0x3ff);
    bits = (bits & 0x000fffffffffffff) + root_half;
    double m;
    memcpy(&m, &bits, 8);
    const double s = (m - 1) / (m + 1), z = s * s;
    double series = 0;
    for (int k = 10; k > 0; --k) series = z * (series + 1.0 / (2 * k + 1));
    return e * 0x1.62e42feep-1 + (2 * s + (2 * s * series + e * 0x1.a39ef35793c76p-33));  // ln 2 in two parts, the first product exact
  }

  // cos 2πv, 0 ≤ v < 1: the nearest quarter of a turn is taken off exactly, the rest, at most an eighth, is Taylor's.
  HEADROOM_CONVERT static double cos_of_turn(double v) {
    const int quarter = (int(8 * v) + 1) / 2;
    const double a = 2 * std::numbers::pi * (v - 0.25 * quarter), z = a * a;
    double x = 1;
    if (quarter % 2 == 1) {  // a sine
      for (int n = 17; n > 1; n -= 2) x = 1 - z * (1.0 / (n * (n - 1))) * x;
      x *= a;
    } else {
      for (int n = 16; n > 1; n -= 2) x = 1 - z * (1.0 / (n * (n - 1))) * x;
    }
    return quarter == 1 || quarter == 2 ? -x : x;
  }
};

}  // namespace headroom
