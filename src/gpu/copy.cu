// copy_on_device — by a kernel. cudaMemcpy within a card may use a copy engine, which is slower than the memory (a graph of one copy of a
// GiB: 2.7 of 4.2 TB/s on an H200, 2026-11-21).
#include <algorithm>

#include "base/divide.h"
#include "base/error.h"
#include "gpu/buffer.h"
#include "gpu/launch.cuh"

namespace headroom {

namespace {

constexpr int threads = 512, pieces = 4;  // 16-byte pieces that a thread loads before it stores them

struct CopyArgs {
  const uint4* from;
  uint4* to;
  std::size_t count;
};

__global__ void __launch_bounds__(threads) copy_on_device_kernel(const __grid_constant__ CopyArgs a) {
  const std::size_t step = std::size_t(gridDim.x) * threads * pieces;
  for (std::size_t first = std::size_t(blockIdx.x) * threads * pieces + threadIdx.x; first < a.count; first += step) {
    uint4 held[pieces];
#pragma unroll
    for (int n = 0; n < pieces; ++n)
      if (const std::size_t at = first + std::size_t(n) * threads; at < a.count) held[n] = __ldcs(a.from + at);
#pragma unroll
    for (int n = 0; n < pieces; ++n)
      if (const std::size_t at = first + std::size_t(n) * threads; at < a.count) __stcs(a.to + at, held[n]);
  }
}

}  // namespace

void copy_on_device(void* to, const void* from, std::size_t bytes, const Stream& s) {
  check(bytes % sizeof(uint4) == 0, Code::bad_argument, "copy_on_device: {} bytes are no multiple of 16", bytes);
  if (bytes == 0) return;
  const std::size_t count = bytes / sizeof(uint4), per_block = std::size_t(threads) * pieces;
  launch(cuda_stream(s.raw()), copy_on_device_kernel,
         {dim3(unsigned(std::min<std::size_t>(ceil_div(count, per_block), 1u << 20))), dim3(threads)},
         CopyArgs{static_cast<const uint4*>(from), static_cast<uint4*>(to), count});
}

}  // namespace headroom
