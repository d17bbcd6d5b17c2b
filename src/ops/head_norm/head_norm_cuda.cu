#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "gpu/reduce.cuh"
#include "gpu/vec.cuh"
#include "ops/head_norm/impl.h"
#include "ops/parts.cuh"

namespace headroom::head_norm {

namespace {

constexpr int warps = 8, most_pairs = int(most_dim) / 2 / 32;  // pairs of elements that are turned together, in one thread

template <class T>
struct Args {
  const T* x;
  T* y;  // forward: the output; backward: the gradient, in and out
  const float *weight, *table;
  float* sums;  // [parts, dim]
  std::int64_t len, positions, x_batch, x_row, x_head, y_batch, y_row, y_head, positions_each;
  int heads, half;
  float eps;
};

// One head of one position, a warp's: f(k, i) for each of the thread's pairs (i, half + i).
template <class T>
struct Head {
  const T* x;
  T* y;
  const float *cosine, *sine;
  __device__ Head(const Args<T>& a, std::int64_t position, int head)
      : x(a.x + position / a.len * a.x_batch + position % a.len * a.x_row + head * a.x_head),
        y(a.y + position / a.len * a.y_batch + position % a.len * a.y_row + head * a.y_head),
        cosine(a.table + position % a.len * 2 * a.half),
        sine(cosine + a.half) {}
};
template <class F>
__device__ void each_pair(int half, F&& f) {
#pragma unroll
  for (int k = 0; k < most_pairs; ++k)
    if (const int i = k * 32 + int(threadIdx.x % 32); i < half) f(k, i);
}

// head_norm_fwd — one warp per head of a position.     limit  bandwidth
template <class T>
__global__ void __launch_bounds__(32 * warps) head_norm_fwd(const __grid_constant__ Args<T> a) {
  const std::int64_t unit = std::int64_t(blockIdx.x) * warps + threadIdx.x / 32;
  if (unit >= a.positions * a.heads) return;
  const Head<T> head(a, unit / a.heads, int(unit % a.heads));
  float u[most_pairs], v[most_pairs], squares = 0;
  each_pair(a.half, [&](int k, int i) {
    u[k] = widened(head.x[i]), v[k] = widened(head.x[a.half + i]);
    squares += u[k] * u[k] + v[k] * v[k];
  });
  const float r = 1.0f / sqrtf(warp_sum(squares) / float(2 * a.half) + a.eps);
  each_pair(a.half, [&](int k, int i) {
    const float p = u[k] * r * a.weight[i], q = v[k] * r * a.weight[a.half + i], c = head.cosine[i], s = head.sine[i];
    head.y[i] = rounded<T>(p * c - q * s);
    head.y[a.half + i] = rounded<T>(q * c + p * s);
  });
}

// head_norm_bwd — one block per part of the positions; a warp takes every 8th head, the warps' shares of dweight are added in order.
//   g = the turn back of d; dweight += g·x̂; dx = r·(w·g − x̂·mean(w·g·x̂)), x̂ = r·x
template <class T>
__global__ void __launch_bounds__(32 * warps) head_norm_bwd(const __grid_constant__ Args<T> a) {
  __shared__ float shares[warps][most_dim];
  const std::int64_t begin = blockIdx.x * a.positions_each, end = min(a.positions, begin + a.positions_each);
  const int warp = int(threadIdx.x / 32), n = 2 * a.half;
  float sum_u[most_pairs] = {}, sum_v[most_pairs] = {};
  for (std::int64_t unit = begin * a.heads + warp; unit < end * a.heads; unit += warps) {
    const Head<T> head(a, unit / a.heads, int(unit % a.heads));
    float u[most_pairs], v[most_pairs], g[most_pairs], h[most_pairs], squares = 0, slope = 0;
    each_pair(a.half, [&](int k, int i) {
      u[k] = widened(head.x[i]), v[k] = widened(head.x[a.half + i]);
      const float d = widened(head.y[i]), e = widened(head.y[a.half + i]), c = head.cosine[i], s = head.sine[i];
      g[k] = d * c + e * s, h[k] = e * c - d * s;
      squares += u[k] * u[k] + v[k] * v[k];
      slope += a.weight[i] * g[k] * u[k] + a.weight[a.half + i] * h[k] * v[k];
    });
    const float r = 1.0f / sqrtf(warp_sum(squares) / float(n) + a.eps), mean = warp_sum(slope) * r / float(n);
    each_pair(a.half, [&](int k, int i) {
      const float p = u[k] * r, q = v[k] * r;
      sum_u[k] += g[k] * p, sum_v[k] += h[k] * q;
      head.y[i] = rounded<T>(r * (a.weight[i] * g[k] - p * mean));
      head.y[a.half + i] = rounded<T>(r * (a.weight[a.half + i] * h[k] - q * mean));
    });
  }
  each_pair(a.half, [&](int k, int i) { shares[warp][i] = sum_u[k], shares[warp][a.half + i] = sum_v[k]; });
  __syncthreads();
  for (int i = int(threadIdx.x); i < n; i += 32 * warps) {
    float sum = 0;
    for (int w = 0; w < warps; ++w) sum += shares[w][i];
    a.sums[std::int64_t(blockIdx.x) * n + i] = sum;
  }
}

template <class T>
Args<T> args_of(const Tensor& x, const Tensor& y, const Tensor& weight, const Tensor& table, float eps) {
  return {x.as<T>(),
          y.as<T>(),
          weight.as<float>(),
          table.as<float>(),
          nullptr,
          x.shape[1],
          x.shape[0] * x.shape[1],
          x.stride[0],
          x.stride[1],
          x.stride[2],
          y.stride[0],
          y.stride[1],
          y.stride[2],
          0,
          int(x.shape[2]),
          int(x.shape[3] / 2),
          eps};
}

}  // namespace

void forward_cuda(const Forward& t, Context& ctx) {
  if (t.x.count() == 0) return;
  with_float(t.x.dtype, [&]<class T>() {
    const Args<T> args = args_of<T>(t.x, t.y, t.weight, t.table, t.eps);
    launch(static_cast<cudaStream_t>(ctx.stream), head_norm_fwd<T>,
           {grid_of((args.positions * args.heads + warps - 1) / warps), 32 * warps}, args);
  });
}

void backward_cuda(const Backward& t, const Parts& parts, const Tensor& sums, Context& ctx) {
  const auto stream = static_cast<cudaStream_t>(ctx.stream);
  if (t.x.count() > 0)
    with_float(t.x.dtype, [&]<class T>() {
      Args<T> args = args_of<T>(t.x, t.d, t.weight, t.table, t.eps);
      args.sums = sums.as<float>(), args.positions_each = parts.rows_each;
      launch(stream, head_norm_bwd<T>, {grid_of(parts.count), 32 * warps}, args);
    });
  parts::add_up(sums, t.x.count() > 0 ? parts : Parts{1, 0}, t.dweight, t.into_dweight, stream);
}

}  // namespace headroom::head_norm
