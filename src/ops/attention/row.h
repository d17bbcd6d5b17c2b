// One head's numbers at one position: a row of Q, K, V, O and their gradients.
#pragma once
#include <cstdint>

#include "base/tensor.h"

namespace headroom::attention {

template <class T>
T* row_of(const Tensor& t, std::int64_t b, std::int64_t row, std::int64_t head) {  // t is [batch, len, heads, dim]
  return t.as<T>() + b * t.stride[0] + row * t.stride[1] + head * t.stride[2];
}

}  // namespace headroom::attention
