// blocks_around.cu — what surrounds the backward of flash_simt and flash_sm80: Δ and LSE·log2 e of every row; zeros.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <numbers>

#include "gpu/launch.cuh"
#include "ops/attention/sm80/blocks.cuh"

namespace headroom::attention::blocks {

namespace {

__device__ float wide(float x) { return x; }
__device__ float wide(__half x) { return __half2float(x); }
__device__ float wide(__nv_bfloat16 x) { return __bfloat162float(x); }

// attention_bwd_statistics — Δ = rowsum(dO ∘ O) - dLSE and LSE·log2 e, a warp per row; rows that see nothing, or are none, get +∞ and 0.
//   reads  O, dO, LSE, dLSE once     writes  8 bytes a row     limit  memory bandwidth
template <class T>
__global__ void __launch_bounds__(256) attention_bwd_statistics(const __grid_constant__ StatisticsArgs a) {
  const long long at = blockIdx.x * 8ll + threadIdx.x / 32, pair = at / a.padded, row = at % a.padded;
  const long long batch = pair / a.heads, head = pair % a.heads;
  const int lane = threadIdx.x % 32;
  float sum = 0;
  if (row < a.len_q) {
    const T *const o = rows_at<T>(a.o, batch, head, row), *const d_o = rows_at<T>(a.d_o, batch, head, row);
    for (int d = lane; d < a.dim_v; d += 32) sum += wide(o[d]) * wide(d_o[d]);
  }
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane != 0) return;
  const float lse = row < a.len_q ? a.lse[pair * a.len_q + row] : -INFINITY;
  const bool blind = lse == -INFINITY;
  a.lse_log2[at] = blind ? INFINITY : lse * std::numbers::log2e_v<float>;
  a.delta[at] = blind ? 0 : sum - (a.dlse ? a.dlse[pair * a.len_q + row] : 0);
}

// attention_bwd_zero — a warp per row of a head; grid (rows / 8, heads, batch).
template <class T>
__global__ void __launch_bounds__(256) attention_bwd_zero(const __grid_constant__ ZeroArgs a) {
  const long long row = blockIdx.x * 8ll + threadIdx.x / 32;
  if (row >= a.len) return;
  T* const to = rows_at<T>(a.to, blockIdx.z, blockIdx.y, row);
  for (int d = threadIdx.x % 32; d < a.head_dim; d += 32) to[d] = T(0.f);
}

}  // namespace

template <class T>
void start_statistics(const StatisticsArgs& a, int pairs, cudaStream_t stream) {
  launch(stream, attention_bwd_statistics<T>, {dim3(unsigned((long long)pairs * a.padded / 8)), 256}, a);
}
template <class T>
void start_zero(const ZeroArgs& a, int batch, int heads, cudaStream_t stream) {
  launch(stream, attention_bwd_zero<T>, {dim3((a.len + 7) / 8, heads, batch), 256}, a);
}

template void start_statistics<float>(const StatisticsArgs&, int, cudaStream_t);
template void start_statistics<__half>(const StatisticsArgs&, int, cudaStream_t);
template void start_statistics<__nv_bfloat16>(const StatisticsArgs&, int, cudaStream_t);
template void start_zero<float>(const ZeroArgs&, int, int, cudaStream_t);
template void start_zero<__half>(const ZeroArgs&, int, int, cudaStream_t);
template void start_zero<__nv_bfloat16>(const ZeroArgs&, int, int, cudaStream_t);

}  // namespace headroom::attention::blocks
