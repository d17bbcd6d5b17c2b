// Where an element of a tensor is; nowhere, of a tensor without memory, as dry runs have them.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/tensor.h"

namespace headroom {

inline void* element_of(const Tensor& t, std::int64_t i) {
  return t.data ? t.as<std::byte>() + i * std::int64_t(size_of(t.dtype)) : nullptr;
}

}  // namespace headroom
