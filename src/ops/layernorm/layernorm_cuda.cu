#include <algorithm>

#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "gpu/reduce.cuh"
#include "ops/layernorm/impl.h"
#include "ops/parts.cuh"
#include "ops/row_wise.cuh"

namespace headroom::layernorm {

namespace {

using namespace row_wise;
static_assert(widest == widest_on_gpu);

template <class T>
struct ForwardArgs {
  const T* x;
  const float *weight, *bias;
  T* y;
  float *mean, *rstd;
  std::int64_t rows;
  int width;
  float eps;
};

// layernorm_fwd — blocks take rows in turn: a pass for the mean, one for the variance, one for the result.
//   reads  x once, weight, bias     writes  y, mean, rstd     numerics  FP32, fixed order     limit  bandwidth
template <class T, class Row>
__global__ void __launch_bounds__(most_threads) layernorm_fwd(const __grid_constant__ ForwardArgs<T> a) {
  extern __shared__ uint4 shared[];
  Room& room = *reinterpret_cast<Room*>(shared);
  Rows<T, Row, 1> rows(&room + 1, {a.x}, a.width, {blockIdx.x, gridDim.x, a.rows});
  const Weights<Row> w(a.weight, a.width), b(a.bias, a.width);
  for (; rows.more(); rows.next()) {
    rows.arrive();
    float sum = 0, squares = 0;
    Row::each(a.width, [&](int, int i) {
      for (T v : rows.read(0, i).at) sum += widened(v);
    });
    const float mean = block_sum(sum, room[0]) / float(a.width);
    Row::each(a.width, [&](int, int i) {
      for (T v : rows.read(0, i).at) squares += (widened(v) - mean) * (widened(v) - mean);
    });
    const float r = 1.0f / sqrtf(block_sum(squares, room[1]) / float(a.width) + a.eps);
    if (threadIdx.x == 0) {
      a.mean[rows.row()] = mean;
      a.rstd[rows.row()] = r;
    }
    Row::each(a.width, [&](int k, int i) {
      auto y = rows.read(0, i);
#pragma unroll
      for (int e = 0; e < Row::vec; ++e) y.at[e] = rounded<T>((widened(y.at[e]) - mean) * r * w.at[k][e] + b.at[k][e]);
      store(a.y + rows.row() * a.width + i, y);
    });
  }
}

template <class T>
struct BackwardArgs {
  const T *x, *dy;
  const float *weight, *mean, *rstd;
  T* dx;
  float* sums;  // [parts, 2 · width]: of dweight, then of dbias
  std::int64_t rows, rows_each;
  int width;
  float per_width;  // 1 / width
  bool add;
};

// layernorm_bwd — one block per part, row after row.
//   reads  x, dy, weight, mean, rstd, dx when adding     writes  dx, the part's shares of dweight and dbias
//   numerics  dx = r·(w·dy − mean(w·dy) − x̂·mean(w·dy·x̂)), x̂ = r·(x − mean), FP32, fixed order     limit  bandwidth
template <class T, class Row>
__global__ void __launch_bounds__(most_threads) layernorm_bwd(const __grid_constant__ BackwardArgs<T> a) {
  constexpr int vec = Row::vec;
  extern __shared__ uint4 shared[];
  Room& room = *reinterpret_cast<Room*>(shared);
  const std::int64_t begin = blockIdx.x * a.rows_each, end = min(a.rows, begin + a.rows_each);
  Rows<T, Row, 3> rows(&room + 1, {a.x, a.dy, a.add ? a.dx : nullptr}, a.width, {begin, 1, end});
  const Weights<Row> w(a.weight, a.width);
  Pack<float, vec> dweight[Row::pieces] = {}, dbias[Row::pieces] = {};
  for (; rows.more(); rows.next()) {
    const float mean = a.mean[rows.row()], r = a.rstd[rows.row()];
    rows.arrive();
    float plain = 0, along = 0;
    Row::each(a.width, [&](int k, int i) {
      const auto x = widened(rows.read(0, i)), dy = widened(rows.read(1, i));
#pragma unroll
      for (int e = 0; e < vec; ++e) {
        const float unit = (x.at[e] - mean) * r, g = w.at[k][e] * dy.at[e];
        dweight[k].at[e] += dy.at[e] * unit;
        dbias[k].at[e] += dy.at[e];
        plain += g;
        along += g * unit;
      }
    });
    plain = block_sum(plain, room[0]) * a.per_width;
    along = block_sum(along, room[1]) * a.per_width;
    Row::each(a.width, [&](int k, int i) {
      const auto x = widened(rows.read(0, i)), dy = widened(rows.read(1, i));
      Pack<float, vec> out{};
      if (a.add) out = widened(rows.read(2, i));
#pragma unroll
      for (int e = 0; e < vec; ++e) out.at[e] += r * (w.at[k][e] * dy.at[e] - plain - (x.at[e] - mean) * r * along);
      store(a.dx + rows.row() * a.width + i, rounded<T>(out));
    });
  }
  float* sums = a.sums + std::int64_t(blockIdx.x) * 2 * a.width;
  Row::each(a.width, [&](int k, int i) {
    store(sums + i, dweight[k]);
    store(sums + a.width + i, dbias[k]);
  });
}

}  // namespace

void forward_cuda(const Forward& t, Context& ctx) {
  const auto rows = t.x.shape[0], width = t.x.shape[1];
  if (t.x.count() == 0) return;
  with_row<16>(width, {t.x, t.y, t.weight, t.bias}, [&]<class T, class Row>() {
    const unsigned threads = Row::threads(width);
    launch(cuda_stream(ctx.stream), layernorm_fwd<T, Row>,
           {grid_of(std::min(rows, blocks_at_once(ctx.device, threads))), threads, sizeof(Room) + Rows<T, Row, 1>::shared_bytes(width)},
           {.x = t.x.as<T>(),
            .weight = t.weight.as<float>(),
            .bias = t.bias.as<float>(),
            .y = t.y.as<T>(),
            .mean = t.mean.as<float>(),
            .rstd = t.rstd.as<float>(),
            .rows = rows,
            .width = int(width),
            .eps = t.eps});
  });
}

void backward_cuda(const Backward& t, const Parts& parts, const Tensor& sums, Context& ctx) {
  const auto stream = cuda_stream(ctx.stream);
  const auto rows = t.x.shape[0], width = t.x.shape[1];
  if (width == 0) return;
  if (rows > 0)
    with_row<16>(width, {t.x, t.dy, t.dx, t.weight, sums}, [&]<class T, class Row>() {
      launch(stream, layernorm_bwd<T, Row>,
             {grid_of(parts.count), Row::threads(width), sizeof(Room) + Rows<T, Row, 3>::shared_bytes(width)},
             {.x = t.x.as<T>(),
              .dy = t.dy.as<T>(),
              .weight = t.weight.as<float>(),
              .mean = t.mean.as<float>(),
              .rstd = t.rstd.as<float>(),
              .dx = t.dx.as<T>(),
              .sums = sums.as<float>(),
              .rows = rows,
              .rows_each = parts.rows_each,
              .width = int(width),
              .per_width = 1.0f / float(width),
              .add = t.into_dx == Gradient::accumulate});
    });
  parts::add_up(sums, parts, t.dweight, t.into_weights, stream);
  parts::add_up(Tensor(sums.as<float>() + width, DType::f32, sums.shape), parts, t.dbias, t.into_weights, stream);
}

}  // namespace headroom::layernorm
