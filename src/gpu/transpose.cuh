// transpose.cuh — 8 × 8 values of 16 bits between the lanes of a warp.
#pragma once
#include <cstdint>

namespace headroom {

// Four lanes hold a row, two neighbours each: lane 4r + c the values (r, 2c) and (r, 2c + 1), before and after.
__device__ __forceinline__ std::uint32_t transposed(std::uint32_t block) {
  std::uint32_t r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(block));
  return r;
}

}  // namespace headroom
