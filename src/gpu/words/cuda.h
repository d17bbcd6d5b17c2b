// See cuda_runtime_api.h.
#pragma once

#ifndef HEADROOM_TENSOR_MAP_ALIGNMENT  // 64 beside kernels of a CUDA before 13 (cmake/cuda.cmake)
#define HEADROOM_TENSOR_MAP_ALIGNMENT 128
#endif

struct alignas(HEADROOM_TENSOR_MAP_ALIGNMENT) CUtensorMap {
  unsigned long long opaque[16];
};
