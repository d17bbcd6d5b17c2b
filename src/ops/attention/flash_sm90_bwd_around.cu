// flash_sm90_bwd_around.cu — what runs before and after the backward's main kernel: Δ and LSE·log2e; dQ from its fp32 sum; zeros.
#include "gpu/launch.cuh"
#include "ops/attention/flash_sm90_bwd_rows.cuh"
#include "ops/attention/tiles.h"

namespace headroom::attention::sm90::backward {

// attention_bwd_pre_sm90 — Δ = rowsum(dO ∘ O) - dLSE, LSE·log2e, zeroed dq and counters.  A row is served by dim/8 lanes.
//   reads O, dO, LSE once; writes 8 bytes per row and 4·dim zeros     limit  memory bandwidth
template <class C>
__global__ void __launch_bounds__(256) attention_bwd_pre_sm90(const __grid_constant__ PreArgs a) {
  using T = typename C::T;
  constexpr int dim = C::dim;
  constexpr int lanes = dim / 8, rows = 256 / lanes;
  const int row = blockIdx.x * rows + threadIdx.x / lanes, lane = threadIdx.x % lanes, pair = blockIdx.y;
  const int batch = pair / a.heads, head = pair % a.heads;
  if (blockIdx.y == 0)
    for (int i = blockIdx.x * 256 + threadIdx.x; i < a.zero_count; i += gridDim.x * 256) a.zeros[i] = 0;
  float sum = 0;
  if (row < a.len_q && lane * 8 < a.head_dim) {
    const auto at = [&](const void* x, const Strides& s) {
      return *reinterpret_cast<const uint4*>(static_cast<const T*>(x) + batch * s.batch + row * s.row + head * s.head + lane * 8);
    };
    const uint4 o = at(a.o, a.o_strides), d = at(a.dout, a.do_strides);
    const std::uint32_t ow[4] = {o.x, o.y, o.z, o.w}, dw[4] = {d.x, d.y, d.z, d.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 x = unpack<T>(ow[i]), y = unpack<T>(dw[i]);
      sum += x.x * y.x + x.y * y.y;
    }
  }
#pragma unroll
  for (int i = lanes / 2; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
  if (row >= a.padded) return;
  if (lane == 0) {
    const std::size_t from = std::size_t(pair) * a.len_q + row, to = std::size_t(pair) * a.padded + stat_at(row);
    const float lse = row < a.len_q ? a.lse[from] : -INFINITY;
    const bool blind = lse == -INFINITY;  // sees no key: P must be 0
    a.lse2[to] = blind ? INFINITY : lse * log2e;
    a.minus_delta[to] = blind ? 0 : (a.dlse ? a.dlse[from] : 0) - sum;
  }
  if (a.dq) {
    float4* q = reinterpret_cast<float4*>(a.dq + (std::size_t(pair) * a.padded + row) * dim) + lane;
    q[0] = q[lanes] = make_float4(0, 0, 0, 0);
  }
}

// attention_bwd_post_sm90 — dQ = scale · dq, rounded and put in order. One block of 128 threads per 64 rows and pair.
template <class C>
__global__ void __launch_bounds__(128) attention_bwd_post_sm90(const __grid_constant__ PostArgs a) {
  using T = typename C::T;
  constexpr int dim = C::dim, rows = C::rows;
  const int pair = blockIdx.y, thread = threadIdx.x, row = blockIdx.x * 64 + thread / 32 * 16 + thread % 32 / 4;
  const int m = blockIdx.x * 64 / rows;
  const float* from = a.dq + (std::size_t(pair) * a.query_tiles * rows + blockIdx.x * 64) * dim;
  const bool seen = a.sight.last_key(min(m * rows + rows, a.sight.len_q) - 1) >= a.sight.first_key(m * rows);  // else no block wrote here
  T* to = static_cast<T*>(a.out) + pair / a.heads * a.strides.batch + pair % a.heads * a.strides.head;
#pragma unroll
  for (int c = 0; c < columns_of<C> / 64; ++c) {
    float d[32];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float4 x =
          seen && c * 8 + j < dim / 8 ? reinterpret_cast<const float4*>(from)[(c * 8 + j) * 128 + thread] : make_float4(0, 0, 0, 0);
      d[4 * j] = x.x, d[4 * j + 1] = x.y, d[4 * j + 2] = x.z, d[4 * j + 3] = x.w;
    }
    store_rows(d, a.scale, to, a.strides.row, row, a.sight.len_q, c * 64, a.head_dim);
  }
}

__global__ void attention_bwd_zero_sm90(const __grid_constant__ ZeroArgs a) {  // a block per (row, head, batch), 16-bit elements
  auto* to = static_cast<unsigned short*>(a.out) + blockIdx.z * a.strides.batch + blockIdx.x * a.strides.row + blockIdx.y * a.strides.head;
  for (int i = threadIdx.x; i < a.head_dim; i += blockDim.x) to[i] = 0;
}

template <class C>
void start_before(const PreArgs& a, int pairs, cudaStream_t stream) {
  constexpr int rows = 2048 / C::dim;
  launch(stream, attention_bwd_pre_sm90<C>, {dim3((a.padded + rows - 1) / rows, pairs), 256}, a);
}
template <class C>
void start_after(const PostArgs& a, int pairs, cudaStream_t stream) {
  launch(stream, attention_bwd_post_sm90<C>, {dim3((a.sight.len_q + 63) / 64, pairs), 128}, a);
}
void start_zero(const ZeroArgs& a, int batch, int len, int heads, cudaStream_t stream) {
  launch(stream, attention_bwd_zero_sm90, {dim3(len, heads, batch), 64}, a);
}

template void start_before<Backward64<__nv_bfloat16>>(const PreArgs&, int, cudaStream_t);
template void start_before<Backward64<__half>>(const PreArgs&, int, cudaStream_t);
template void start_before<Backward128<__nv_bfloat16>>(const PreArgs&, int, cudaStream_t);
template void start_before<Backward128<__half>>(const PreArgs&, int, cudaStream_t);
template void start_before<Backward256<__nv_bfloat16>>(const PreArgs&, int, cudaStream_t);
template void start_before<Backward256<__half>>(const PreArgs&, int, cudaStream_t);
template void start_after<Backward64<__nv_bfloat16>>(const PostArgs&, int, cudaStream_t);
template void start_after<Backward64<__half>>(const PostArgs&, int, cudaStream_t);
template void start_after<Backward128<__nv_bfloat16>>(const PostArgs&, int, cudaStream_t);
template void start_after<Backward128<__half>>(const PostArgs&, int, cudaStream_t);
template void start_after<Backward96<__nv_bfloat16>>(const PostArgs&, int, cudaStream_t);
template void start_after<Backward96<__half>>(const PostArgs&, int, cudaStream_t);
template void start_after<Backward80<__nv_bfloat16>>(const PostArgs&, int, cudaStream_t);
template void start_after<Backward80<__half>>(const PostArgs&, int, cudaStream_t);

}  // namespace headroom::attention::sm90::backward
