// Every element of a view of rank 4 (as shapes are padded to), in row-major order: f(its number, its offset in elements).
#pragma once
#include "base/tensor.h"

namespace headroom {

template <class F>
void each_element(const Tensor& t, F&& f) {
  std::int64_t flat = 0;
  for (std::int64_t a = 0; a < t.shape[0]; ++a)
    for (std::int64_t b = 0; b < t.shape[1]; ++b)
      for (std::int64_t c = 0; c < t.shape[2]; ++c)
        for (std::int64_t d = 0; d < t.shape[3]; ++d, ++flat)
          f(flat, a * t.stride[0] + b * t.stride[1] + c * t.stride[2] + d * t.stride[3]);
}

}  // namespace headroom
