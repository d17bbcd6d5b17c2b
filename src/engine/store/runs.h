// Runs of elements as tensors of one dimension.
#pragma once
#include "base/element.h"

namespace headroom::engine {

inline Tensor flat(const Tensor& t) { return t ? Tensor(t.data, t.dtype, {t.count()}) : Tensor(); }
inline Tensor run_of(const Tensor& t, std::int64_t first, std::int64_t count) { return Tensor(element_of(t, first), t.dtype, {count}); }

}  // namespace headroom::engine
