// bwd_around.cu — what runs before and after the backward's main kernel: Δ and LSE·log2e; dQ from its fp32 sum; zeros.
#include "gpu/launch.cuh"
#include "ops/attention/sm90/bwd_rows.cuh"
#include "ops/attention/sm90/tiles.h"

namespace headroom::attention::sm90::backward {

template <class T>
__device__ __forceinline__ float dot(const uint4& a, const uint4& b) {  // the sum of 8 pairs' products
  const std::uint32_t aw[4] = {a.x, a.y, a.z, a.w}, bw[4] = {b.x, b.y, b.z, b.w};
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 x = unpack<T>(aw[i]), y = unpack<T>(bw[i]);
    sum += x.x * y.x + x.y * y.y;
  }
  return sum;
}

// attention_bwd_pre_sm90 — Δ = rowsum(dO ∘ O) - dLSE, LSE·log2e, zeroed dq and counters. A block takes 16 rows of several heads of a batch:
// thread (piece, head, z) multiplies the same 8 columns of every so many rows, then the first threads add up a row of a head each.
//   reads O, dO, LSE once; writes 8 bytes per row and 4·dim zeros     limit  memory bandwidth
template <class C>
__global__ void __launch_bounds__(pre_threads, 4) attention_bwd_pre_sm90(const __grid_constant__ PreArgs a) {
  using T = typename C::T;
  constexpr int dim = C::dim, at_once = 2;
  __shared__ float parts[pre_rows][pre_threads + 1];
  const int heads = blockDim.y, together = blockDim.z, threads = blockDim.x * heads * together, first = blockIdx.y * heads,
            batch = blockIdx.z, place = blockIdx.x * pre_rows, column = threadIdx.y * blockDim.x + threadIdx.x,
            thread = threadIdx.z * heads * blockDim.x + column;
  int row = place, end = a.len_q;
  if (a.row_tiles) {
    const RowTile t = a.row_tiles[batch * (a.padded / a.of_tile) + place / a.of_tile];
    row = t.first + place % a.of_tile, end = t.end;
  }
  if (blockIdx.y == 0 && blockIdx.z == 0)
    for (int i = blockIdx.x * threads + thread; i < a.zero_count; i += gridDim.x * threads) a.zeros[i] = 0;
  const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  if (block == 0 && a.far.count + thread < far_bytes(a.far.count)) a.far.blocks[a.far.count + thread] = 0;

  const int answer_row = row + thread % pre_rows, answer_head = first + thread / pre_rows;
  const bool answers = thread < heads * pre_rows && answer_head < a.heads;
  const float lse = answers && answer_row < end ? a.lse[(std::size_t(batch) * a.heads + answer_head) * a.len_q + answer_row] : -INFINITY;

  if (const int head = first + threadIdx.y; head < a.heads) {
    const auto start = [&](const void* x, const Strides& s) {
      return static_cast<const T*>(x) + batch * s.batch + head * s.head + (row + threadIdx.z) * s.row + threadIdx.x * 8;
    };
    const T *o = start(a.o, a.o_strides), *d = start(a.dout, a.do_strides);
    const long long o_step = together * a.o_strides.row, d_step = together * a.do_strides.row;
    const int rows = min(pre_rows, end - row);
    for (int r = threadIdx.z; r < rows; r += at_once * together) {
      uint4 x[at_once], y[at_once];
#pragma unroll
      for (int i = 0; i < at_once; ++i, o += o_step, d += d_step)
        if (r + i * together < rows) x[i] = *reinterpret_cast<const uint4*>(o), y[i] = *reinterpret_cast<const uint4*>(d);
#pragma unroll
      for (int i = 0; i < at_once; ++i)
        if (r + i * together < rows) parts[r + i * together][column] = dot<T>(x[i], y[i]);
    }
  }
  const bool far = __syncthreads_or(lse != -INFINITY && fabsf(lse) > far_lse);
  if (thread == 0) a.far.blocks[block] = far;
  if (answers) {
    const std::size_t pair = std::size_t(batch) * a.heads + answer_head, to = pair * a.padded + stat_at(place + thread % pre_rows);
    const bool blind = lse == -INFINITY;  // sees no key: P must be 0
    float sum = 0;
    if (!blind) {
      const float* part = &parts[thread % pre_rows][thread / pre_rows * blockDim.x];
#pragma unroll 4
      for (int i = 0; i < int(blockDim.x); ++i) sum += part[i];
    }
    a.lse2[to] = blind ? INFINITY : lse * log2e - a.less;
    a.minus_delta[to] = blind ? 0 : (a.dlse ? a.dlse[pair * a.len_q + answer_row] : 0) - sum;
  }
  if (a.dq)
    for (int h = first; h < min(first + heads, a.heads); ++h) {
      float4* const q = reinterpret_cast<float4*>(a.dq + ((std::size_t(batch) * a.heads + h) * a.padded + place) * dim);
#pragma unroll 1
      for (int i = thread; i < pre_rows * dim / 4; i += threads) q[i] = make_float4(0, 0, 0, 0);
    }
}

// attention_bwd_post_sm90 — dQ = scale · dq, rounded and put in order. One block of 128 threads per 64 rows and pair.
template <class C>
__global__ void __launch_bounds__(128) attention_bwd_post_sm90(const __grid_constant__ PostArgs a) {
  using T = typename C::T;
  constexpr int dim = C::dim, rows = C::rows;
  const int pair = blockIdx.y, thread = threadIdx.x, m = blockIdx.x * 64 / rows;
  int row = blockIdx.x * 64 + thread / 32 * 16 + thread % 32 / 4, end = a.band.len_q;
  if (a.row_tiles) {
    const RowTile t = a.row_tiles[pair / a.heads * a.query_tiles + m];
    row += t.first - m * rows, end = t.end;
    if (t.first == t.end) return;
  }
  const float* from = a.dq + (std::size_t(pair) * a.query_tiles * rows + blockIdx.x * 64) * dim;
  const bool seen = a.turns ? a.turns[(pair * a.query_tiles + m) * 2] > 0  // else no block wrote here
                            : a.band.reach == Reach::listed || a.band.key_tiles<numbers>(m * rows, rows, backward_keys).end > 0;
  T* to = static_cast<T*>(a.out) + pair / a.heads * a.strides.batch + pair % a.heads * a.strides.head;
  float d[dim / 2];
#pragma unroll
  for (int j = 0; j < dim / 8; ++j) {
    const float4 x = seen ? reinterpret_cast<const float4*>(from)[j * 128 + thread] : make_float4(0, 0, 0, 0);
    d[4 * j] = x.x, d[4 * j + 1] = x.y, d[4 * j + 2] = x.z, d[4 * j + 3] = x.w;
  }
  if (a.not_numbers) report_nan(d, a.not_numbers);
  if (a.turned_by) turn_back(d, a.turned_by, row, end);
  store_rows(d, a.scale, to, a.strides.row, row, end, 0, a.head_dim);
}

__global__ void attention_bwd_zero_sm90(const __grid_constant__ ZeroArgs a) {  // a block per (row, head, batch), 16-bit elements
  auto* to = static_cast<unsigned short*>(a.out) + blockIdx.z * a.strides.batch + blockIdx.x * a.strides.row + blockIdx.y * a.strides.head;
  for (int i = threadIdx.x; i < a.head_dim; i += blockDim.x) to[i] = 0;
}

template <class C>
void start_before(const PreArgs& a, int pairs, cudaStream_t stream) {
  const PreShape s = pre_shape(a.heads, a.dim_v);
  launch(stream, attention_bwd_pre_sm90<C>, {dim3(a.padded / pre_rows, s.blocks, pairs / a.heads), dim3(s.pieces, s.heads, s.together)}, a);
}
template <class C>
void start_after(const PostArgs& a, int pairs, cudaStream_t stream) {
  launch(stream, attention_bwd_post_sm90<C>, {dim3(a.row_tiles ? a.query_tiles * (C::rows / 64) : (a.band.len_q + 63) / 64, pairs), 128},
         a);
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
template void start_after<Backward64Capped<__nv_bfloat16>>(const PostArgs&, int, cudaStream_t);
template void start_after<Backward64Capped<__half>>(const PostArgs&, int, cudaStream_t);
template void start_after<Backward128<__nv_bfloat16>>(const PostArgs&, int, cudaStream_t);
template void start_after<Backward128<__half>>(const PostArgs&, int, cudaStream_t);
template void start_after<Backward96<__nv_bfloat16>>(const PostArgs&, int, cudaStream_t);
template void start_after<Backward96<__half>>(const PostArgs&, int, cudaStream_t);
template void start_after<Backward80<__nv_bfloat16>>(const PostArgs&, int, cudaStream_t);
template void start_after<Backward80<__half>>(const PostArgs&, int, cudaStream_t);

}  // namespace headroom::attention::sm90::backward
