// Reductions of small values, by NCCL's numbers of types and operations.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace headroom::dry {

enum Reduction : int { reduce_sum = 0, reduce_product = 1, reduce_max = 2, reduce_min = 3, reduce_average = 4, reduce_unknown = 5 };

constexpr std::size_t nccl_type_bytes(int type) {
  constexpr std::size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < int(sizeof bytes / sizeof bytes[0]) ? bytes[type] : 1;
}

constexpr bool is_byte(int type) { return type == 0 || type == 1; }

namespace detail {

template <class T>
bool reduce_as(char* into, const char* with, std::size_t bytes, int operation) {
  for (std::size_t i = 0; i + sizeof(T) <= bytes; i += sizeof(T)) {
    T a, b;
    std::memcpy(&a, into + i, sizeof a);
    std::memcpy(&b, with + i, sizeof b);
    switch (operation) {
      case reduce_sum:
      case reduce_average: a = T(a + b); break;
      case reduce_product: a = T(a * b); break;
      case reduce_max: a = a < b ? b : a; break;
      case reduce_min: a = b < a ? b : a; break;
      default: return false;
    }
    std::memcpy(into + i, &a, sizeof a);
  }
  return true;
}

template <class T>
bool divide_as(char* at, std::size_t bytes, int by) {
  for (std::size_t i = 0; i + sizeof(T) <= bytes; i += sizeof(T)) {
    T a;
    std::memcpy(&a, at + i, sizeof a);
    a = T(a / T(by));
    std::memcpy(at + i, &a, sizeof a);
  }
  return true;
}

// Calls f with the type that has this number; false for halves and bytes of floating point, which are not computed.
template <class F>
bool with_type(int type, F&& f) {
  switch (type) {
    case 0: return f(std::int8_t());
    case 1: return f(std::uint8_t());
    case 2: return f(std::int32_t());
    case 3: return f(std::uint32_t());
    case 4: return f(std::int64_t());
    case 5: return f(std::uint64_t());
    case 7: return f(float());
    case 8: return f(double());
    default: return false;
  }
}

}  // namespace detail

inline bool reduce(char* into, const char* with, std::size_t bytes, int type, int operation) {
  return detail::with_type(type, [&](auto t) { return detail::reduce_as<decltype(t)>(into, with, bytes, operation); });
}

inline bool divide(char* at, std::size_t bytes, int type, int by) {
  return detail::with_type(type, [&](auto t) { return detail::divide_as<decltype(t)>(at, bytes, by); });
}

}  // namespace headroom::dry
