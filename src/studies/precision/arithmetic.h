// The arithmetic of the precision lab: sums, norms and round trips, every step rounded to the format in question. The same code on CPU
// and GPU. GPU files need --fmad=false, because a fused multiply-add rounds a product and a sum once.
#pragma once
#include <bit>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/formats.h"
#include "base/random.h"

namespace headroom::studies::precision {

HEADROOM_CONVERT bool finite(float x) { return (bits_of(x) & convert::fp32_infinity) != convert::fp32_infinity; }

template <class T>
HEADROOM_CONVERT float rounded(float x) {
  return widen(narrow<T>(x));
}

// The ways to add one more number. `value()` is the sum so far; everything inside is rounded to T. `stalled()` is a proof that
// further additions of the same number can never change the value again.
template <class T>
struct Sequential {
  float sum = 0;
  bool repeats = false;
  HEADROOM_CONVERT void add(float x) {
    const float next = rounded<T>(sum + x);
    repeats = next == sum;
    sum = next;
  }
  HEADROOM_CONVERT float value() const { return sum; }
  HEADROOM_CONVERT bool stalled() const { return repeats; }
};

template <class T>
struct Kahan {
  float sum = 0, lost = 0;           // lost: what the last addition rounded away
  float anchor = 0;                  // lost at some addition since the sum last moved: when it comes back, {sum, lost} goes in a circle
  std::int64_t since = 0, span = 1;  // the anchor is set anew after 1, 2, 4 … additions, so that it gets into the circle
  bool repeats = false;
  HEADROOM_CONVERT void add(float x) {
    const float corrected = rounded<T>(x - lost), next = rounded<T>(sum + corrected);
    lost = rounded<T>(rounded<T>(next - sum) - corrected);
    const bool moved = next != sum;
    sum = next;
    repeats = !moved && lost == anchor;
    if (moved || ++since == span) {
      anchor = lost;
      span = moved ? 1 : 2 * span;
      since = 0;
    }
  }
  HEADROOM_CONVERT float value() const { return sum; }
  HEADROOM_CONVERT bool stalled() const { return repeats; }
};

template <class T>
struct Blocked {
  std::int64_t block, inside = 0;
  float total = 0, part = 0;
  bool repeats = false;           // a whole block left the total as it was, and every block is the same
  std::int64_t part_stalled = 0;  // the addend of a block from which on its part stays the same; 0: none before it is full
  float part_stalled_at = 0;
  HEADROOM_CONVERT void add(float x) {
    const float next = rounded<T>(part + x);
    ++inside;
    if (next == part && part_stalled == 0) {
      part_stalled = inside;
      part_stalled_at = part;
    }
    part = next;
    if (inside < block) return;
    const float sum = value();
    repeats = sum == total;
    total = sum;
    part = 0;
    inside = 0;
  }
  HEADROOM_CONVERT float value() const { return rounded<T>(total + part); }
  HEADROOM_CONVERT bool stalled() const { return repeats; }
};

// A sum of two fp32 numbers, rounded to fp32 up or down with the probability that keeps the mean: fp32 is fp64 without its last
// 29 bits, and among fp32's subnormals there is nothing to round.
HEADROOM_CONVERT float stochastic_fp32(double x, std::uint32_t random) {
  constexpr std::uint64_t last = (1u << 29) - 1;
  return float(std::bit_cast<double>((std::bit_cast<std::uint64_t>(x) + (random & last)) & ~last));
}

template <class T>
struct Stochastic {
  Random random;
  std::uint64_t step = 0;
  float sum = 0;
  HEADROOM_CONVERT void add(float x) {  // rounds to fp32, then to T, each with its own bits: both keep the mean
    const std::uint64_t bits = random.bits(step++);
    sum = widen(narrow_stochastic<T>(stochastic_fp32(double(sum) + double(x), std::uint32_t(bits)), std::uint32_t(bits >> 32)));
  }
  HEADROOM_CONVERT float value() const { return sum; }
};

template <class T>
struct Pairwise {};  // needs the count before it begins

template <class Sum>
HEADROOM_CONVERT float total(Sum sum, float x, std::int64_t count) {
  for (std::int64_t step = 0; step < count && finite(sum.value()); ++step) {
    if constexpr (requires { sum.stalled(); })
      if (sum.stalled()) break;
    sum.add(x);
  }
  return sum.value();
}

// Halves of equal length have equal sums, so one level holds two: of m numbers and of m + 1, m being the count's leading bits.
template <class T>
HEADROOM_CONVERT float total(Pairwise<T>, float x, std::int64_t count) {
  int bit = 0;
  while (count >> (bit + 1)) ++bit;
  float few = x, many = rounded<T>(x + x);
  while (bit-- > 0) {
    const float both = rounded<T>(few + many);
    if (count >> bit & 1) {
      few = both;
      many = rounded<T>(many + many);
    } else {
      few = rounded<T>(few + few);
      many = both;
    }
  }
  return few;
}

// Calls f with the sum that a method's name means, in format T.
template <class T, class F>
decltype(auto) with_method(std::string_view method, std::int64_t block, Random random, F&& f) {
  if (method == "sequential") return f(Sequential<T>{});
  if (method == "kahan") return f(Kahan<T>{});
  if (method == "blocked") return f(Blocked<T>{block});
  if (method == "stochastic") return f(Stochastic<T>{random});
  if (method == "pairwise") return f(Pairwise<T>{});
  throw Error(Code::bad_argument, fmt::format("method '{}' is not known", method));
}

// y = (x − mean) / √(mean square + eps), as a kernel without care would: one running sum, every step rounded to S.
template <class S>
struct Statistics {
  float mean = 0, squares = 0, mean_square = 0, with_eps = 0, rstd = 0;

  HEADROOM_CONVERT Statistics(const float* x, std::int64_t count, bool centred, double eps) {
    const auto width = float(count);
    if (centred) {
      for (std::int64_t i = 0; i < count; ++i) mean = rounded<S>(mean + rounded<S>(x[i]));
      mean = rounded<S>(mean / width);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const float d = centred ? rounded<S>(rounded<S>(x[i]) - mean) : rounded<S>(x[i]);
      squares = rounded<S>(squares + rounded<S>(d * d));
    }
    mean_square = rounded<S>(squares / width);
    with_eps = rounded<S>(mean_square + rounded<S>(float(eps)));
    rstd = rounded<S>(1.0f / rounded<S>(std::sqrt(with_eps)));
  }
  HEADROOM_CONVERT float output(float v) const { return rounded<S>(rounded<S>(rounded<S>(v) - mean) * rstd); }
};

// A few numbers to a format and back; `block` at a time.
template <class T>
struct PlainTrip {
  static constexpr int block = 1;
  HEADROOM_CONVERT void operator()(const float* x, float* y, int) const { *y = rounded<T>(*x); }
};
template <class T>
struct MxTrip {
  static constexpr int block = mx_block;
  HEADROOM_CONVERT void operator()(const float* x, float* y, int count) const {
    T element[mx_block];
    const e8m0 scale = mx_encode(x, element, count);
    mx_decode(element, scale, y, count);
  }
};
struct Nvfp4Trip {
  static constexpr int block = nvfp4_block;
  float tensor;
  HEADROOM_CONVERT void operator()(const float* x, float* y, int count) const {
    e2m1 element[nvfp4_block];
    const e4m3 scale = nvfp4_encode(x, element, count, tensor);
    nvfp4_decode(element, scale, tensor, y, count);
  }
};

// Calls f with the trip to a format of base/formats.h; `largest` is the largest magnitude of the tensor.
template <class F>
decltype(auto) with_trip(std::string_view format, float largest, F&& f) {
  if (format == "MXFP8 (e4m3)") return f(MxTrip<e4m3>{});
  if (format == "MXFP8 (e5m2)") return f(MxTrip<e5m2>{});
  if (format == "MXFP4") return f(MxTrip<e2m1>{});
  if (format == "NVFP4") return f(Nvfp4Trip{nvfp4_tensor_scale(largest)});
  return with_format(format, [&]<class T>() { return f(PlainTrip<T>{}); });
}

}  // namespace headroom::studies::precision
