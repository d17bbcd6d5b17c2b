// Tensors as Hopper's copy engine sees them.
#pragma once
#include "base/error.h"
#include "base/tensor.h"
#include "gpu/map.h"

namespace headroom::attention::sm90 {

inline void check_reachable(const char* name, const Tensor& t) {  // by TMA
  check(reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0, Code::unsupported, "flash_sm90: {} must start on 16 bytes", name);
  for (int i = 0; i < 3; ++i) {
    const std::int64_t stride = t.stride[std::size_t(i)];
    check(t.shape[i] <= 1 || (stride > 0 && stride % 8 == 0 && stride < (1ll << 39)), Code::unsupported,
          "flash_sm90: {} has stride {} in dimension {}; strides must be positive multiples of 8 elements (16 bytes)", name, stride, i);
  }
}

inline Map map_of(const Tensor& t, int box_rows) {  // [batch, len, heads, dim] → (dim, len, heads, batch)
  const auto stride = [&](int i) { return std::uint64_t(t.shape[i] > 1 ? t.stride[std::size_t(i)] : 8); };
  return make_map(t.data, t.dtype == DType::f16 ? MapType::f16 : MapType::bf16,
                  {.rank = 4,
                   .dim = {std::uint64_t(t.shape[3]), std::uint64_t(t.shape[1]), std::uint64_t(t.shape[2]), std::uint64_t(t.shape[0])},
                   .stride = {1, stride(1), stride(2), stride(0)},
                   .box = {panel_columns, std::uint32_t(box_rows), 1, 1}});
}

}  // namespace headroom::attention::sm90
