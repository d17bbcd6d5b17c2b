// What ranks of a test bring to a collective, and what its sum has to be: FP32, in the order of ranks, divided and rounded once.
#pragma once
#include <cstdint>
#include <vector>

#include "base/convert.h"

namespace headroom::dist {

template <class T>
T value_of(int rank, std::int64_t i) {  // both signs, and sizes that round
  const auto u = std::uint32_t(rank * 2654435761u + std::uint32_t(i) * 40503u);
  return narrow<T>((float(u % 20011) - 10005.f) / float(1 + u % 977));
}

template <class T>
std::vector<T> values_of(int rank, std::int64_t count) {
  std::vector<T> v(std::size_t(count), T{});
  for (std::int64_t i = 0; i < count; ++i) v[std::size_t(i)] = value_of<T>(rank, i);
  return v;
}

template <class T>
T in_order(int ranks, std::int64_t i, int divisor) {
  float s = widen(value_of<T>(0, i));
  for (int r = 1; r < ranks; ++r) s += widen(value_of<T>(r, i));
  return narrow<T>(s / float(divisor));
}

}  // namespace headroom::dist
