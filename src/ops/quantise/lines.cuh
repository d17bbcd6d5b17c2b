// Whole rows in 8 bits, where a scale is a row's and no transposed copy is wanted.
#pragma once
#include "ops/quantise/tile_codes.cuh"

namespace headroom::quantise {

constexpr int line_threads = 128;

// quantise_lines — the copy as it is with a scale a row, and no other: a block takes a row, so it needs no maxima from before.
//   reads  x once, kept in shared memory     writes  as quantise     numerics  as quantise     limit  bandwidth
template <class T, class A>
__global__ void __launch_bounds__(line_threads) quantise_lines(const __grid_constant__ Args<T> a) {
  using W = Word<T>;
  extern __shared__ __align__(16) std::uint32_t line[];
  __shared__ std::uint32_t of_warps[line_threads / 32];
  __shared__ unsigned clipped, flushed, nan;
  const std::int64_t first = std::int64_t(blockIdx.x) * a.columns;
  const int pieces = a.columns / own;
  if (threadIdx.x == 0) clipped = flushed = nan = 0;
  std::uint32_t largest = 0;
  bool special = false;
  for (int p = int(threadIdx.x); p < pieces; p += line_threads) {
    std::uint32_t x[W::count], m = 0;
    load_words<T>(a.x + first + std::int64_t(p) * own, x);
#pragma unroll
    for (int w = 0; w < W::count; ++w) {
      line[p * W::count + w] = x[w];
      m = W::max(m, W::magnitude(x[w]));
    }
    if (W::any_infinite(m)) {
      special = true, m = 0;
#pragma unroll
      for (int w = 0; w < W::count; ++w) m = W::max(m, W::finite(W::magnitude(x[w])));
    }
    largest = W::max(largest, m);
  }
  if constexpr (W::holds == 2) largest = ::max(largest & 0xffffu, largest >> 16);
  largest = __reduce_max_sync(~0u, largest);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = largest;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < line_threads / 32; ++w) largest = ::max(largest, of_warps[w]);
  const float scale = scale_of<A>(W::wide(largest)), inverse = 1 / scale;
  if (threadIdx.x == 0) a.as_is.scale[blockIdx.x] = scale;
  int lost = 0;
  for (int p = int(threadIdx.x); p < pieces; p += line_threads) {  // a thread's own pieces: no barrier needed
    std::uint32_t x[W::count];
#pragma unroll
    for (int w = 0; w < W::count; ++w) x[w] = line[p * W::count + w];
    uint2 codes = {};
    if (!special) {
#pragma unroll
      for (int j = 0; j < own; j += 2) put<A>(codes, j, W::value(x, j) * inverse, W::value(x, j + 1) * inverse);
#pragma unroll
      for (int w = 0; w < W::count; ++w) lost += W::nonzero(W::magnitude(x[w]));
      lost -= nonzero_codes(codes);
    } else {
#pragma unroll
      for (int j = 0; j < own; ++j) {
        const Encoded v = encode<A>(W::special_value(x, j), inverse);
        (j < 4 ? codes.x : codes.y) |= std::uint32_t(v.bits) << j % 4 * 8;
        lost += v.flushed;
        if (v.clipped) atomicAdd(&clipped, 1u);
        if (v.nan) atomicAdd(&nan, 1u);
      }
    }
    *reinterpret_cast<uint2*>(a.as_is.values + first + std::int64_t(p) * own) = codes;
  }
  if (!a.counts) return;
  const unsigned of_warp = __reduce_add_sync(~0u, unsigned(lost));
  if (threadIdx.x % 32 == 0 && of_warp) atomicAdd(&flushed, of_warp);
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) atomicAdd(a.counts + Count::numbers, (unsigned long long)a.rows * (unsigned long long)a.columns);
  if (clipped) atomicAdd(a.counts + Count::clipped, (unsigned long long)clipped);
  if (flushed) atomicAdd(a.counts + Count::flushed, (unsigned long long)flushed);
  if (nan) atomicAdd(a.counts + Count::nan, (unsigned long long)nan);
}

}  // namespace headroom::quantise
