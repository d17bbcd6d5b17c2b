#include <algorithm>

#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "gpu/reduce.cuh"
#include "gpu/vec.cuh"
#include "ops/parts.cuh"
#include "ops/rmsnorm/impl.h"

namespace headroom::rmsnorm {

namespace {

constexpr int most_threads = 512;

// A block takes a row at a time; a thread keeps `own` elements of it in registers, in pieces of `vec` that lie a block's width apart.
template <int vec_, int own_>
struct Row {
  static constexpr int vec = vec_, own = own_, pieces = own / vec;
  static constexpr std::int64_t widest() { return own * most_threads; }

  static unsigned threads(std::int64_t width) {
    const auto pieces_of_row = (width + vec - 1) / vec;
    return unsigned(std::clamp<std::int64_t>(((pieces_of_row + pieces - 1) / pieces + 31) / 32 * 32, 32, most_threads));
  }
  template <class F>
  __device__ static void each(int width, F&& f) {  // f(which of the thread's pieces, where it begins)
#pragma unroll
    for (int k = 0; k < pieces; ++k)
      if (const int i = (k * int(blockDim.x) + int(threadIdx.x)) * vec; i < width) f(k, i);
  }
};
static_assert(Row<1, 32>::widest() == widest_on_gpu);

template <class T>
struct ForwardArgs {
  const T* x;
  const float* weight;
  T* y;
  float* rstd;
  int width;
  float eps;
};

// rmsnorm_fwd — one block per row.
//   reads  x once, weight     writes  y, rstd     numerics  FP32, fixed order     limit  bandwidth
template <class T, class Row>
__global__ void __launch_bounds__(most_threads) rmsnorm_fwd(const __grid_constant__ ForwardArgs<T> a) {
  __shared__ float room[32];
  const std::int64_t row = blockIdx.x;
  const T* x = a.x + row * a.width;
  T* y = a.y + row * a.width;
  Pack<T, Row::vec> kept[Row::pieces];
  Row::each(a.width, [&](int k, int i) { kept[k] = load<Row::vec>(x + i); });
  float sum = 0;
  Row::each(a.width, [&](int k, int) {
    for (T v : kept[k].at) sum += widened(v) * widened(v);
  });
  const float r = 1.0f / sqrtf(block_sum(sum, room) / float(a.width) + a.eps);
  if (threadIdx.x == 0) a.rstd[row] = r;
  Row::each(a.width, [&](int k, int i) {
    const auto w = load<Row::vec>(a.weight + i);
#pragma unroll
    for (int e = 0; e < Row::vec; ++e) kept[k].at[e] = rounded<T>(widened(kept[k].at[e]) * r * w.at[e]);
    store(y + i, kept[k]);
  });
}

template <class T>
struct BackwardArgs {
  const T *x, *dy;
  const float *weight, *rstd;
  T* dx;
  float* sums;  // [parts, width]
  std::int64_t rows, rows_each;
  int width;
  bool add;
};

// rmsnorm_bwd — one block per part, row after row; the next row's loads are under way while this one is summed.
//   reads  x, dy, weight, rstd, dx when adding     writes  dx, the part's share of dweight
//   numerics  dx = r·(w·dy − x̂·mean(w·dy·x̂)), x̂ = r·x, FP32, fixed order     limit  bandwidth
template <class T, class Row>
__global__ void __launch_bounds__(most_threads) rmsnorm_bwd(const __grid_constant__ BackwardArgs<T> a) {
  constexpr int vec = Row::vec;
  __shared__ float room[2][32];  // in turns, so that one barrier a row is enough
  const std::int64_t begin = blockIdx.x * a.rows_each, end = min(a.rows, begin + a.rows_each);
  Pack<T, vec> x[Row::pieces], dy[Row::pieces], before[Row::pieces];
  float root = 0, dweight[Row::pieces][vec] = {};
  const auto fetch = [&](std::int64_t row) {
    root = a.rstd[row];
    Row::each(a.width, [&](int k, int i) {
      x[k] = load<vec>(a.x + row * a.width + i);
      dy[k] = load<vec>(a.dy + row * a.width + i);
      if (a.add) before[k] = load<vec>(a.dx + row * a.width + i);
    });
  };
  fetch(begin);
  for (std::int64_t row = begin; row < end; ++row) {
    const float r = root;
    Pack<T, vec> old[Row::pieces];
#pragma unroll
    for (int k = 0; k < Row::pieces; ++k) old[k] = before[k];
    float sum = 0, unit[Row::pieces][vec], slope[Row::pieces][vec];
    Row::each(a.width, [&](int k, int i) {
      const auto w = load<vec>(a.weight + i);
#pragma unroll
      for (int e = 0; e < vec; ++e) {
        const float g = widened(dy[k].at[e]);
        unit[k][e] = widened(x[k].at[e]) * r;
        slope[k][e] = w.at[e] * g;
        dweight[k][e] += g * unit[k][e];
        sum += slope[k][e] * unit[k][e];
      }
    });
    if (row + 1 < end) fetch(row + 1);
    const float mean = block_sum(sum, room[row & 1]) / float(a.width);
    Row::each(a.width, [&](int k, int i) {
      Pack<T, vec> out;
#pragma unroll
      for (int e = 0; e < vec; ++e) {
        const float value = r * (slope[k][e] - unit[k][e] * mean);
        out.at[e] = rounded<T>(a.add ? widened(old[k].at[e]) + value : value);
      }
      store(a.dx + row * a.width + i, out);
    });
  }
  Row::each(a.width, [&](int k, int i) {
    Pack<float, vec> out;
#pragma unroll
    for (int e = 0; e < vec; ++e) out.at[e] = dweight[k][e];
    store(a.sums + std::int64_t(blockIdx.x) * a.width + i, out);
  });
}

// f.operator()<T, Row>() for a storage type, and the widest pieces and fewest registers, but `least`, that serve rows of this width.
template <int least, class F, class... Pointers>
void with_row(DType dtype, std::int64_t width, F&& f, const Pointers*... at) {
  with_float(dtype, [&]<class T>() {
    const auto with_own = [&]<int vec>() {
      constexpr int own = least < vec ? vec : least;
      if (width <= Row<vec, own>::widest())
        f.template operator()<T, Row<vec, own>>();
      else if (width <= Row<vec, 16>::widest())
        f.template operator()<T, Row<vec, 16>>();
      else
        f.template operator()<T, Row<vec, 32>>();
    };
    if (pieces_of<T>(width, at...) > 1)
      with_own.template operator()<16 / sizeof(T)>();
    else
      with_own.template operator()<1>();
  });
}

}  // namespace

void forward_cuda(const Forward& t, Context& ctx) {
  const auto rows = t.x.shape[0], width = t.x.shape[1];
  if (t.x.count() == 0) return;
  const auto start = [&]<int least>() {
    with_row<least>(
        t.x.dtype, width,
        [&]<class T, class Row>() {
          launch(static_cast<cudaStream_t>(ctx.stream), rmsnorm_fwd<T, Row>, {grid_of(rows), Row::threads(width)},
                 {t.x.as<T>(), t.weight.as<float>(), t.y.as<T>(), t.rstd.as<float>(), int(width), t.eps});
        },
        t.x.as<char>(), t.y.as<char>(), t.weight.as<char>());
  };
  t.x.dtype == DType::f32 ? start.template operator()<8>() : start.template operator()<16>();  // two pieces of 16 bytes a thread
}

void backward_cuda(const Backward& t, const Parts& parts, const Tensor& sums, Context& ctx) {
  const auto stream = static_cast<cudaStream_t>(ctx.stream);
  const auto rows = t.x.shape[0], width = t.x.shape[1];
  if (width == 0) return;
  if (rows > 0)
    with_row<8>(
        t.x.dtype, width,
        [&]<class T, class Row>() {
          launch(stream, rmsnorm_bwd<T, Row>, {grid_of(parts.count), Row::threads(width)},
                 {t.x.as<T>(), t.dy.as<T>(), t.weight.as<float>(), t.rstd.as<float>(), t.dx.as<T>(), sums.as<float>(), rows,
                  parts.rows_each, int(width), t.into_dx == Gradient::accumulate});
        },
        t.x.as<char>(), t.dy.as<char>(), t.dx.as<char>(), t.weight.as<char>());
  parts::add_up(sums, parts, t.dweight, t.into_dweight, stream);
}

}  // namespace headroom::rmsnorm
