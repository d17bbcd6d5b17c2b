// Tensor maps: how TMA splits a tensor in global memory into boxes.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace headroom {

constexpr int panel_columns = 64;  // 16-bit columns of a 128-byte swizzled panel: the widest inner box

// dim[0] is contiguous; stride[i] is in elements. Outside the tensor, a box reads zeros and writes nothing.
// The inner box is 64 16-bit columns (128 bytes): one swizzled panel.
struct Map {
  alignas(128) std::uint64_t raw[16];  // CUDA's CUtensorMap, said so because every kernel's source would read <cuda.h> for it alone
};
struct MapShape {
  int rank;
  std::uint64_t dim[5], stride[5];
  std::uint32_t box[5];
  bool in_pairs = true;  // L2 fetches 256 bytes for each 128 that are asked of it, else these alone
};

enum class MapType : std::uint8_t { bf16, f16 };
Map make_map(const void* data, MapType, const MapShape&);  // throws Error if the driver refuses it

template <class T>
Map make_map(const T* data, const MapShape& s) {
  static_assert(std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, __half>);
  return make_map(data, std::is_same_v<T, __half> ? MapType::f16 : MapType::bf16, s);
}

}  // namespace headroom
