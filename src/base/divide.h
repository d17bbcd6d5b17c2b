// Division that rounds up. Also for kernels.
#pragma once
#include <type_traits>

namespace headroom {

template <class T>
constexpr T ceil_div(T n, std::type_identity_t<T> by) {  // how many pieces of size `by` cover n
  return (n + by - 1) / by;
}
template <class T>
constexpr T round_up(T n, std::type_identity_t<T> to) {  // the next multiple
  return ceil_div(n, to) * to;
}

}  // namespace headroom
