#include <algorithm>

#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "gpu/reduce.cuh"
#include "ops/parts.cuh"
#include "ops/rmsnorm/impl.h"
#include "ops/row_wise.cuh"

namespace headroom::rmsnorm {

namespace {

using namespace row_wise;
static_assert(widest == widest_on_gpu);

// What rows are like: packed, without a residual; or apart, with or without one. rstd_alone: packed, and y is not written.
enum class Layout : std::uint8_t { packed, apart, rstd_alone };

template <class T>
struct ForwardArgs {
  const T *x, *residual;
  const float* weight;
  T* y;
  float* rstd;
  std::int64_t rows;
  int width;
  float eps;
  std::int64_t strides[2], y_stride;  // x's, the residual's; y's
};

// rmsnorm_fwd — blocks take rows in turn.
//   reads  x once, weight, the residual     writes  y unless left out, rstd     numerics  FP32, fixed order     limit  bandwidth
template <class T, class Row, Layout layout>
__global__ void __launch_bounds__(most_threads) rmsnorm_fwd(const __grid_constant__ ForwardArgs<T> a) {
  constexpr bool apart = layout == Layout::apart;
  extern __shared__ uint4 shared[];
  Room& room = *reinterpret_cast<Room*>(shared);
  const RowRange range{blockIdx.x, gridDim.x, a.rows};
  auto rows = [&] {
    if constexpr (apart)
      return Rows<T, Row, 2, true>(&room + 1, {a.x, a.residual}, a.width, range, a.strides);
    else
      return Rows<T, Row, 1>(&room + 1, {a.x}, a.width, range);
  }();
  const Weights<Row> w(a.weight, a.width);
  for (int turn = 0; rows.more(); rows.next(), turn ^= 1) {
    rows.arrive();
    float sum = 0;
    Row::each(a.width, [&](int, int i) {
      for (T v : rows.read(0, i).at) sum += widened(v) * widened(v);
    });
    const float r = 1.0f / sqrtf(block_sum(sum, room[turn]) / float(a.width) + a.eps);
    if (threadIdx.x == 0) a.rstd[rows.row()] = r;
    if constexpr (layout == Layout::rstd_alone) continue;
    Row::each(a.width, [&](int k, int i) {
      auto y = rows.read(0, i);
      if constexpr (apart) {
        Pack<float, Row::vec> sum{};
        if (a.residual) sum = widened(rows.read(1, i));
#pragma unroll
        for (int e = 0; e < Row::vec; ++e) sum.at[e] += widened(y.at[e]) * r * w.at[k][e];
        store(a.y + rows.row() * a.y_stride + i, rounded<T>(sum));
      } else {
#pragma unroll
        for (int e = 0; e < Row::vec; ++e) y.at[e] = rounded<T>(widened(y.at[e]) * r * w.at[k][e]);
        store(a.y + rows.row() * a.width + i, y);
      }
    });
  }
}

template <class T>
struct BackwardArgs {
  const T *x, *dy;
  const float *weight, *rstd;
  T* dx;
  float* sums;  // [parts, width]
  std::int64_t rows, rows_each;
  int width;
  float per_width;  // 1 / width
  bool add;
  std::int64_t strides[3];  // x's, dy's, dx's
};

// rmsnorm_bwd — one block per part, row after row.
//   reads  x, dy, weight, rstd, dx when adding     writes  dx, which may be dy, the part's share of dweight
//   numerics  dx = r·w·dy − x·r²·mean(w·dy·x̂), x̂ = r·x, FP32, fixed order     limit  bandwidth
template <class T, class Row, Layout layout>
__global__ void __launch_bounds__(most_threads) rmsnorm_bwd(const __grid_constant__ BackwardArgs<T> a) {
  constexpr int vec = Row::vec;
  constexpr bool apart = layout == Layout::apart;
  extern __shared__ uint4 shared[];
  Room& room = *reinterpret_cast<Room*>(shared);
  const std::int64_t begin = blockIdx.x * a.rows_each, end = min(a.rows, begin + a.rows_each), dx_stride = apart ? a.strides[2] : a.width;
  Rows<T, Row, 3, apart> rows(&room + 1, {a.x, a.dy, a.add ? a.dx : nullptr}, a.width, {begin, 1, end}, a.strides);
  const Weights<Row> w(a.weight, a.width);
  Pack<float, vec> dweight[Row::pieces] = {};
  constexpr bool kept = Row::own <= 8;  // both stay in FP32 registers between the two passes over the row
  Pack<float, vec> x[kept ? Row::pieces : 1], dy[kept ? Row::pieces : 1];
  const bool adds = a.add;
  float roots = 0;  // 32 rows', one a lane
  T* dx = a.dx + begin * dx_stride;
  for (int turn = 0; rows.more(); rows.next(), ++turn, dx += dx_stride) {
    if (turn % 32 == 0) roots = a.rstd[min(rows.row() + threadIdx.x % 32, end - 1)];
    const float r = __shfl_sync(~0u, roots, turn % 32);
    rows.arrive();
    float sum = 0;
    Row::each(a.width, [&](int k, int i) {
      const int at = kept ? k : 0;
      x[at] = widened(rows.read(0, i));
      dy[at] = widened(rows.read(1, i));
#pragma unroll
      for (int e = 0; e < vec; ++e) {
        const float slope = dy[at].at[e] * x[at].at[e];
        dweight[k].at[e] += slope * r;
        sum += w.at[k][e] * slope;
      }
    });
    const float pull = block_sum(sum, room[turn % 2]) * a.per_width * r * r * r;  // r² · mean(w·dy·x̂)
    Row::each(a.width, [&](int k, int i) {
      const int at = kept ? k : 0;
      if constexpr (!kept) {
        x[at] = widened(rows.read(0, i));
        dy[at] = widened(rows.read(1, i));
      }
      Pack<float, vec> out{};
      if (adds) out = widened(rows.read(2, i));
#pragma unroll
      for (int e = 0; e < vec; ++e) out.at[e] += r * (w.at[k][e] * dy[at].at[e]) - x[at].at[e] * pull;
      store(dx + i, rounded<T>(out));
    });
  }
  Row::each(a.width, [&](int k, int i) { store(a.sums + std::int64_t(blockIdx.x) * a.width + i, dweight[k]); });
}

template <Layout layout, int least>
void start_forward(const Forward& t, Context& ctx) {
  constexpr int tensors = layout == Layout::apart ? 2 : 1;
  const auto rows = t.x.shape[0], width = t.x.shape[1];
  with_row<least>(width, {t.x, t.y, t.residual, t.weight}, [&]<class T, class Row>() {
    const unsigned threads = Row::threads(width);
    launch(
        cuda_stream(ctx.stream), rmsnorm_fwd<T, Row, layout>,
        {grid_of(std::min(rows, blocks_at_once(ctx.device, threads))), threads, sizeof(Room) + Rows<T, Row, tensors>::shared_bytes(width)},
        {.x = t.x.as<T>(),
         .residual = t.residual.as<T>(),
         .weight = t.weight.as<float>(),
         .y = t.y.as<T>(),
         .rstd = t.rstd.as<float>(),
         .rows = rows,
         .width = int(width),
         .eps = t.eps,
         .strides = {t.x.stride[0], t.residual.stride[0]},
         .y_stride = t.y.stride[0]});
  });
}

template <Layout layout, int least>
void start_backward(const Backward& t, const Parts& parts, const Tensor& sums, Context& ctx) {
  const auto width = t.x.shape[1];
  with_row<least>(width, {t.x, t.dy, t.dx, t.weight}, [&]<class T, class Row>() {
    launch(cuda_stream(ctx.stream), rmsnorm_bwd<T, Row, layout>,
           {grid_of(parts.count), Row::threads(width), sizeof(Room) + Rows<T, Row, 3>::shared_bytes(width)},
           {.x = t.x.as<T>(),
            .dy = t.dy.as<T>(),
            .weight = t.weight.as<float>(),
            .rstd = t.rstd.as<float>(),
            .dx = t.dx.as<T>(),
            .sums = sums.as<float>(),
            .rows = t.x.shape[0],
            .rows_each = parts.rows_each,
            .width = int(width),
            .per_width = 1.0f / float(width),
            .add = t.into_dx == Gradient::accumulate,
            .strides = {t.x.stride[0], t.dy.stride[0], t.dx.stride[0]}});
  });
}

}  // namespace

void forward_cuda(const Forward& t, Context& ctx) {
  if (t.x.count() == 0) return;
  if (t.residual || !t.x.contiguous() || (t.y && !t.y.contiguous())) return start_forward<Layout::apart, 16>(t, ctx);
  const auto start = [&]<Layout layout>() {  // two pieces of 16 bytes a thread
    t.x.dtype == DType::f32 ? start_forward<layout, 8>(t, ctx) : start_forward<layout, 16>(t, ctx);
  };
  t.y ? start.operator()<Layout::packed>() : start.operator()<Layout::rstd_alone>();
}

void backward_cuda(const Backward& t, const Parts& parts, const Tensor& sums, Context& ctx) {
  if (t.x.shape[1] == 0) return;
  if (t.x.shape[0] > 0) {
    const bool packed = t.x.contiguous() && t.dy.contiguous() && t.dx.contiguous();
    packed ? start_backward<Layout::packed, 8>(t, parts, sums, ctx) : start_backward<Layout::apart, 16>(t, parts, sums, ctx);
  }
  parts::add_up(sums, parts, t.dweight, t.into_dweight, cuda_stream(ctx.stream));
}

}  // namespace headroom::rmsnorm
