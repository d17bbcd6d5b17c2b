// wgmma_rates.cu — how fast one multiprocessor does the products of the backward, by form and width: cycles per m64nNk16 with 1, 2 or 3 warpgroups
// issuing.   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode arch=compute_90a,code=sm_90a -I src bench/lab/wgmma_rates.cu -o wgmma_rates
#include <cstdio>
#include <cstdlib>

#include "gpu/mma.cuh"

using namespace headroom;
using T = __nv_bfloat16;

template <int n, bool from_registers, Major a, Major b>
__global__ void __launch_bounds__(384, 1) rate(long long* cycles, float* out) {
  extern __shared__ __align__(1024) char memory[];
  for (int i = threadIdx.x; i < 196608 / 4; i += blockDim.x) reinterpret_cast<unsigned*>(memory)[i] = 0x3f803f80u + i * 0x00010003u % 0x7fu;
  __syncthreads();
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  const int group = threadIdx.x / 128;
  const Descriptors words(memory);
  float d[n / 2] = {};
  std::uint32_t fragment[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
  const auto run = [&] {
    mma_fence();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const auto bw = b == Major::k ? words.at(98304 + k_offset(128, i % 4)) : words.at(98304 + mn_offset(i % 4), panel_bytes(128));
      if constexpr (from_registers)
        mma<T, b>(d, fragment, bw);
      else
        mma<T, a, b>(d, a == Major::k ? words.at(group * 8192 + k_offset(128, i)) : words.at(group * 8192 + mn_offset(i), panel_bytes(128)),
                     bw);
    }
    mma_commit();
  };
  run();
  mma_wait<0>();
  __syncthreads();
  const long long start = clock64();
  for (int i = 0; i < 200; ++i) run(), mma_wait<1>();
  mma_wait<0>();
  __syncthreads();
  if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - start;
  float sum = 0;
  for (float x : d) sum += x;
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

template <int n, bool rs, Major a, Major b>
void measure(const char* name, long long* cycles, float* out) {
  cudaFuncSetAttribute(rate<n, rs, a, b>, cudaFuncAttributeMaxDynamicSharedMemorySize, 196608);
  std::printf("%-34s n %3d  ideal %3d  cycles each:", name, n, n / 2);
  for (int groups = 1; groups <= 3; ++groups) {
    rate<n, rs, a, b><<<132, groups * 128, 196608>>>(cycles, out);
    if (cudaDeviceSynchronize() != cudaSuccess) std::printf(" error %s", cudaGetErrorString(cudaGetLastError()));
    long long c;
    cudaMemcpy(&c, cycles, 8, cudaMemcpyDeviceToHost);
    std::printf("  %6.1f", double(c) / (200 * 8 * groups));
  }
  std::printf("\n");
}

int main() {
  long long* cycles;
  float* out;
  cudaMalloc(&cycles, 8 * 132), cudaMalloc(&out, 4 * 132 * 384);
  constexpr auto k = Major::k, mn = Major::mn;
  measure<64, false, k, k>("shared k, k", cycles, out), measure<128, false, k, k>("shared k, k", cycles, out),
      measure<256, false, k, k>("shared k, k", cycles, out);
  measure<80, false, k, k>("shared k, k", cycles, out);
  measure<64, true, k, k>("registers, k", cycles, out), measure<128, true, k, k>("registers, k", cycles, out);
  measure<64, true, k, mn>("registers, mn", cycles, out), measure<128, true, k, mn>("registers, mn", cycles, out),
      measure<256, true, k, mn>("registers, mn", cycles, out);
  measure<64, false, mn, mn>("shared mn, mn", cycles, out), measure<128, false, mn, mn>("shared mn, mn", cycles, out);
  measure<64, false, k, mn>("shared k, mn", cycles, out), measure<128, false, k, mn>("shared k, mn", cycles, out),
      measure<64, false, mn, k>("shared mn, k", cycles, out);
  measure<80, false, mn, mn>("shared mn, mn", cycles, out), measure<80, false, mn, k>("shared mn, k", cycles, out),
      measure<128, false, mn, k>("shared mn, k", cycles, out);
}
