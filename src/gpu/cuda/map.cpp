#include <cuda.h>
#include <cuda_runtime_api.h>

#include "base/error.h"
#include "gpu/byte_map.h"
#include "gpu/map.h"

namespace headroom {

namespace {

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                            const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

Encode find_encode() {  // from the loaded driver, so that the library does not link against libcuda
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  const cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
  check(e == cudaSuccess && entry, Code::cuda, "the CUDA driver offers no cuTensorMapEncodeTiled; it must be 12.0 or newer");
  return reinterpret_cast<Encode>(entry);
}

Map encoded(const void* data, const MapShape& s, CUtensorMapDataType element, std::uint64_t size, CUtensorMapSwizzle swizzle) {
  static const Encode encode = find_encode();
  cuuint64_t stride_bytes[4] = {};
  for (int i = 1; i < s.rank; ++i) stride_bytes[i - 1] = s.stride[i] * size;  // each a multiple of 16, below 2^40
  const cuuint32_t every[5] = {1, 1, 1, 1, 1};
  Map m;
  static_assert(sizeof m == sizeof(CUtensorMap) && alignof(Map) % alignof(CUtensorMap) == 0);
  const CUresult r =
      encode(reinterpret_cast<CUtensorMap*>(m.raw), element, cuuint32_t(s.rank), const_cast<void*>(data), s.dim, stride_bytes, s.box, every,
             CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, s.in_pairs ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(r == CUDA_SUCCESS, Code::cuda, "cuTensorMapEncodeTiled refused a tensor: CUresult {}", int(r));
  return m;
}

}  // namespace

Map make_map(const void* data, MapType type, const MapShape& s) {
  return encoded(data, s, type == MapType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
                 CU_TENSOR_MAP_SWIZZLE_128B);
}

Map make_byte_map(const void* data, const MapShape& s, BoxLayout box) {
  return encoded(data, s, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1,
                 box == BoxLayout::swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE);
}

}  // namespace headroom
