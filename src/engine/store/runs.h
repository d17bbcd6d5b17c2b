// Runs of elements as tensors of one dimension.
#pragma once
#include "base/tensor.h"

namespace headroom::engine {

inline Tensor flat(const Tensor& t) { return t ? Tensor(t.data, t.dtype, {t.count()}) : Tensor(); }
inline Tensor run_of(const Tensor& t, std::int64_t first, std::int64_t count) {
  return Tensor(t.as<char>() + first * std::int64_t(size_of(t.dtype)), t.dtype, {count});
}

}  // namespace headroom::engine
