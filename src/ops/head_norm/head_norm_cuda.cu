#include "base/divide.h"
#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "gpu/reduce.cuh"
#include "gpu/vec.cuh"
#include "ops/head_norm/impl.h"
#include "ops/parts.cuh"

namespace headroom::head_norm {

namespace {

constexpr int warps = 8;

template <class T>
struct Args {
  const T* x;
  T* y;  // forward: the output; backward: the gradient, in and out
  const float *weight, *table;
  const int* where;  // a row's position; null: its number in its sequence
  float* sums;       // [parts, dim]
  std::int64_t x_batch, x_row, x_head, y_batch, y_row, y_head;
  unsigned len, positions, positions_each;
  int heads, half, lanes;  // lanes that share a head, a power of two
  float eps;
};

// A warp has a position and 32 / lanes of its heads at a time; a thread has `pieces` of `vec` pairs (i, half + i), which are rotated together.
template <int vec>
struct Pairs {
  static constexpr int pieces = vec > 1 ? 1 : int(most_dim) / 2 / 32;
  using Values = float[pieces][vec];
  int half, lanes;

  __device__ int group() const { return int(threadIdx.x % 32) / lanes; }
  __device__ int groups() const { return 32 / lanes; }
  template <class F>
  __device__ void each(F&& f) const {  // f(which piece, its first i)
#pragma unroll
    for (int k = 0; k < pieces; ++k)
      if (const int i = (k * lanes + int(threadIdx.x) % lanes) * vec; i < half) f(k, i);
  }
  template <class T>
  __device__ void read(const T* from, Values& u, Values& v) const {
    each([&](int k, int i) {
      const auto low = load<vec>(from + i), high = load<vec>(from + half + i);
#pragma unroll
      for (int e = 0; e < vec; ++e) {
        u[k][e] = widened(low.at[e]);
        v[k][e] = widened(high.at[e]);
      }
    });
  }
  template <class T, class F>
  __device__ void write(T* to, F&& value) const {  // value(k, e) answers both of a pair
    each([&](int k, int i) {
      Pack<T, vec> low, high;
#pragma unroll
      for (int e = 0; e < vec; ++e) {
        const float2 pair = value(k, e);
        low.at[e] = rounded<T>(pair.x);
        high.at[e] = rounded<T>(pair.y);
      }
      store(to + i, low);
      store(to + half + i, high);
    });
  }
  __device__ float sum(float x) const {  // over the lanes of a head
    for (int step = lanes / 2; step; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
  }
};

constexpr int at_once = 4;  // heads that a thread loads together

// head_norm_fwd — one warp per position.     limit  bandwidth
template <class T, int vec>
__global__ void __launch_bounds__(32 * warps) head_norm_fwd(const __grid_constant__ Args<T> a) {
  const unsigned position = blockIdx.x * warps + threadIdx.x / 32;
  if (position >= a.positions) return;
  const unsigned batch = position / a.len, row = position % a.len;
  const T* x = a.x + batch * a.x_batch + row * a.x_row;
  T* y = a.y + batch * a.y_batch + row * a.y_row;
  const Pairs<vec> pairs{a.half, a.lanes};
  typename Pairs<vec>::Values c{}, s{}, w{}, z{}, u[at_once], v[at_once];
  pairs.read(a.table + std::int64_t(a.where ? a.where[position] : int(row)) * 2 * a.half, c, s);
  pairs.read(a.weight, w, z);
  for (int first = 0; first < a.heads; first += at_once * pairs.groups()) {
    const auto head_of = [&](int n) { return first + n * pairs.groups() + pairs.group(); };
#pragma unroll
    for (int n = 0; n < at_once; ++n)
      if (head_of(n) < a.heads) pairs.read(x + head_of(n) * a.x_head, u[n], v[n]);
#pragma unroll
    for (int n = 0; n < at_once; ++n) {
      float squares = 0;
      pairs.each([&](int k, int) {
#pragma unroll
        for (int e = 0; e < vec; ++e) squares += u[n][k][e] * u[n][k][e] + v[n][k][e] * v[n][k][e];
      });
      const float r = 1.0f / sqrtf(pairs.sum(squares) / float(2 * a.half) + a.eps);
      if (head_of(n) >= a.heads) continue;
      pairs.write(y + head_of(n) * a.y_head, [&](int k, int e) {
        const float p = u[n][k][e] * r * w[k][e], q = v[n][k][e] * r * z[k][e];
        return float2{p * c[k][e] - q * s[k][e], q * c[k][e] + p * s[k][e]};
      });
    }
  }
}

// head_norm_bwd — one block per part of the positions, a warp takes every 8th; shares of dweight are added in a fixed order.
//   g = d rotated back; dweight += g·x̂; dx = r·(w·g − x̂·mean(w·g·x̂)), x̂ = r·x     limit  bandwidth
template <class T, int vec>
__global__ void __launch_bounds__(32 * warps) head_norm_bwd(const __grid_constant__ Args<T> a) {
  constexpr int together = at_once / 2;
  __shared__ float shares[warps][most_dim];
  const unsigned begin = blockIdx.x * a.positions_each, end = min(a.positions, begin + a.positions_each), warp = threadIdx.x / 32;
  const Pairs<vec> pairs{a.half, a.lanes};
  using Values = typename Pairs<vec>::Values;
  Values c{}, s{}, w{}, z{}, sum_u{}, sum_v{}, u[together], v[together], g[together], h[together];
  pairs.read(a.weight, w, z);
  for (unsigned position = begin + warp; position < end; position += warps) {
    const unsigned batch = position / a.len, row = position % a.len;
    const T* x = a.x + batch * a.x_batch + row * a.x_row;
    T* y = a.y + batch * a.y_batch + row * a.y_row;
    pairs.read(a.table + std::int64_t(a.where ? a.where[position] : int(row)) * 2 * a.half, c, s);
    for (int first = 0; first < a.heads; first += together * pairs.groups()) {
      const auto head_of = [&](int n) { return first + n * pairs.groups() + pairs.group(); };
#pragma unroll
      for (int n = 0; n < together; ++n)
        if (head_of(n) < a.heads) {
          pairs.read(x + head_of(n) * a.x_head, u[n], v[n]);
          pairs.read(y + head_of(n) * a.y_head, g[n], h[n]);
        }
#pragma unroll
      for (int n = 0; n < together; ++n) {
        float squares = 0, slope = 0;
        pairs.each([&](int k, int) {
#pragma unroll
          for (int e = 0; e < vec; ++e) {
            const float d = g[n][k][e], f = h[n][k][e];
            g[n][k][e] = d * c[k][e] + f * s[k][e];
            h[n][k][e] = f * c[k][e] - d * s[k][e];
            squares += u[n][k][e] * u[n][k][e] + v[n][k][e] * v[n][k][e];
            slope += w[k][e] * g[n][k][e] * u[n][k][e] + z[k][e] * h[n][k][e] * v[n][k][e];
          }
        });
        const float r = 1.0f / sqrtf(pairs.sum(squares) / float(2 * a.half) + a.eps), mean = pairs.sum(slope) * r / float(2 * a.half);
        if (head_of(n) >= a.heads) continue;
        pairs.write(y + head_of(n) * a.y_head, [&](int k, int e) {
          const float p = u[n][k][e] * r, q = v[n][k][e] * r;
          sum_u[k][e] += g[n][k][e] * p;
          sum_v[k][e] += h[n][k][e] * q;
          return float2{r * (w[k][e] * g[n][k][e] - p * mean), r * (z[k][e] * h[n][k][e] - q * mean)};
        });
      }
    }
  }
  const auto over_groups = [&](float x) {  // all lanes that have the same pairs
    for (int step = pairs.lanes; step < 32; step *= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
  };
#pragma unroll
  for (int k = 0; k < Pairs<vec>::pieces; ++k)
#pragma unroll
    for (int e = 0; e < vec; ++e) {
      sum_u[k][e] = over_groups(sum_u[k][e]);
      sum_v[k][e] = over_groups(sum_v[k][e]);
    }
  if (pairs.group() == 0)
    pairs.each([&](int k, int i) {
#pragma unroll
      for (int e = 0; e < vec; ++e) {
        shares[warp][i + e] = sum_u[k][e];
        shares[warp][a.half + i + e] = sum_v[k][e];
      }
    });
  __syncthreads();
  for (int i = int(threadIdx.x); i < 2 * a.half; i += 32 * warps) {
    float sum = 0;
    for (int p = 0; p < warps; ++p) sum += shares[p][i];
    a.sums[std::int64_t(blockIdx.x) * 2 * a.half + i] = sum;
  }
}

// f.operator()<T, vec>(args): pairs in fours where every head, and its halves, begin at a multiple of four elements.
template <class F>
void with_args(const Tensor& x, const Tensor& y, const Tensor& weight, const Tensor& table, const Tensor& where, float eps, F&& f) {
  const auto positions = x.shape[0] * x.shape[1], half = x.shape[3] / 2;
  check(positions < (1ll << 31), Code::unsupported, "head_norm: {} positions; a GPU serves fewer than 2^31", positions);
  with_float(x.dtype, [&]<class T>() {
    bool fours = half % 4 == 0;
    for (const Tensor* t : {&x, &y}) {
      fours = fours && reinterpret_cast<std::uintptr_t>(t->data) % (4 * sizeof(T)) == 0;
      for (std::size_t d = 0; d < 3; ++d) fours = fours && t->stride[d] % 4 == 0;
    }
    for (const Tensor* t : {&weight, &table}) fours = fours && reinterpret_cast<std::uintptr_t>(t->data) % 16 == 0;
    int lanes = 32;
    while (fours && lanes > 1 && lanes / 2 * 4 >= half) lanes /= 2;
    const Args<T> args{.x = x.as<T>(),
                       .y = y.as<T>(),
                       .weight = weight.as<float>(),
                       .table = table.as<float>(),
                       .where = where.as<int>(),
                       .sums = nullptr,
                       .x_batch = x.stride[0],
                       .x_row = x.stride[1],
                       .x_head = x.stride[2],
                       .y_batch = y.stride[0],
                       .y_row = y.stride[1],
                       .y_head = y.stride[2],
                       .len = unsigned(x.shape[1]),
                       .positions = unsigned(positions),
                       .positions_each = 0,
                       .heads = int(x.shape[2]),
                       .half = int(half),
                       .lanes = lanes,
                       .eps = eps};
    fours ? f.template operator()<T, 4>(args) : f.template operator()<T, 1>(args);
  });
}

}  // namespace

void forward_cuda(const Forward& t, Context& ctx) {
  if (t.x.count() == 0) return;
  with_args(t.x, t.y, t.weight, t.table, t.positions, t.eps, [&]<class T, int vec>(const Args<T>& args) {
    launch(cuda_stream(ctx.stream), head_norm_fwd<T, vec>, {grid_of(ceil_div(std::int64_t(args.positions), warps)), 32 * warps}, args);
  });
}

void backward_cuda(const Backward& t, const Parts& parts, const Tensor& sums, Context& ctx) {
  const auto stream = cuda_stream(ctx.stream);
  if (t.x.count() > 0)
    with_args(t.x, t.d, t.weight, t.table, t.positions, t.eps, [&]<class T, int vec>(Args<T> args) {
      args.sums = sums.as<float>();
      args.positions_each = unsigned(parts.rows_each);
      launch(stream, head_norm_bwd<T, vec>, {grid_of(parts.count), 32 * warps}, args);
    });
  parts::add_up(sums, t.x.count() > 0 ? parts : Parts{1, 0}, t.dweight, t.into_dweight, stream);
}

}  // namespace headroom::head_norm
