// Division that rounds up: how many pieces of size `by` cover n. Also for kernels.
#pragma once
#include <type_traits>

namespace headroom {

template <class T>
constexpr T ceil_div(T n, std::type_identity_t<T> by) {
  return (n + by - 1) / by;
}

}  // namespace headroom
