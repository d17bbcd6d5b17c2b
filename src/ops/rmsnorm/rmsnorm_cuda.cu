#include <algorithm>

#include "base/divide.h"
#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "gpu/reduce.cuh"
#include "gpu/rows_ahead.cuh"
#include "gpu/vec.cuh"
#include "ops/parts.cuh"
#include "ops/rmsnorm/impl.h"

namespace headroom::rmsnorm {

namespace {

constexpr int most_threads = 512;

// A block takes a row at a time; a thread keeps `own` elements of it in registers, in pieces of `vec`, one block's width apart.
template <int vec_, int own_>
struct Row {
  static constexpr int vec = vec_, own = own_, pieces = own / vec;
  static constexpr std::int64_t widest() { return own * most_threads; }

  static unsigned threads(std::int64_t width) {
    const auto pieces_of_row = ceil_div(width, vec);
    return unsigned(std::clamp<std::int64_t>((ceil_div(pieces_of_row, pieces) + 31) / 32 * 32, 32, most_threads));
  }
  template <class F>
  __device__ static void each(int width, F&& f) {  // f(which of the thread's pieces, where it begins)
#pragma unroll
    for (int k = 0; k < pieces; ++k)
      if (const int i = (k * int(blockDim.x) + int(threadIdx.x)) * vec; i < width) f(k, i);
  }
};
static_assert(Row<1, 32>::widest() == widest_on_gpu);

// Rows to prefetch: three, or as many as fit in 64 bytes of each tensor per thread; more of them would leave fewer blocks resident on a
// multiprocessor. None if rows are not made of 16-byte pieces, or are so wide that not one fits;
// these are read twice.
template <class T, class Row>
constexpr int depth_of() {
  return sizeof(T) * Row::vec == 16 ? std::min(3, 64 / int(sizeof(T) * Row::own)) : 0;
}
template <class T, class Row, int tensors>
using Rows = RowsAhead<T, Row, tensors, depth_of<T, Row>()>;

using Room = float[2][32];  // of the block's sums, used in turn, so that one barrier a row is enough

template <class Row>
struct Weights {  // of a thread's columns, the same for every row
  float at[Row::pieces][Row::vec];
  __device__ Weights(const float* from, int width) {
    Row::each(width, [&](int k, int i) {
      const auto piece = load<Row::vec>(from + i);
#pragma unroll
      for (int e = 0; e < Row::vec; ++e) at[k][e] = piece.at[e];
    });
  }
};

template <class T>
struct ForwardArgs {
  const T* x;
  const float* weight;
  T* y;
  float* rstd;
  std::int64_t rows;
  int width;
  float eps;
};

// rmsnorm_fwd — blocks take rows in turn.
//   reads  x once, weight     writes  y, rstd     numerics  FP32, fixed order     limit  bandwidth
template <class T, class Row>
__global__ void __launch_bounds__(most_threads) rmsnorm_fwd(const __grid_constant__ ForwardArgs<T> a) {
  extern __shared__ uint4 shared[];
  Room& room = *reinterpret_cast<Room*>(shared);
  Rows<T, Row, 1> rows(&room + 1, {a.x}, a.width, {blockIdx.x, gridDim.x, a.rows});
  const Weights<Row> w(a.weight, a.width);
  for (int turn = 0; rows.more(); rows.next(), turn ^= 1) {
    rows.arrive();
    float sum = 0;
    Row::each(a.width, [&](int, int i) {
      for (T v : rows.read(0, i).at) sum += widened(v) * widened(v);
    });
    const float r = 1.0f / sqrtf(block_sum(sum, room[turn]) / float(a.width) + a.eps);
    if (threadIdx.x == 0) a.rstd[rows.row()] = r;
    Row::each(a.width, [&](int k, int i) {
      auto y = rows.read(0, i);
#pragma unroll
      for (int e = 0; e < Row::vec; ++e) y.at[e] = rounded<T>(widened(y.at[e]) * r * w.at[k][e]);
      store(a.y + rows.row() * a.width + i, y);
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
};

// rmsnorm_bwd — one block per part, row after row.
//   reads  x, dy, weight, rstd, dx when adding     writes  dx, the part's share of dweight
//   numerics  dx = r·w·dy − x·r²·mean(w·dy·x̂), x̂ = r·x, FP32, fixed order     limit  bandwidth
template <class T, class Row>
__global__ void __launch_bounds__(most_threads) rmsnorm_bwd(const __grid_constant__ BackwardArgs<T> a) {
  constexpr int vec = Row::vec;
  extern __shared__ uint4 shared[];
  Room& room = *reinterpret_cast<Room*>(shared);
  const std::int64_t begin = blockIdx.x * a.rows_each, end = min(a.rows, begin + a.rows_each);
  Rows<T, Row, 3> rows(&room + 1, {a.x, a.dy, a.add ? a.dx : nullptr}, a.width, {begin, 1, end});
  const Weights<Row> w(a.weight, a.width);
  Pack<float, vec> dweight[Row::pieces] = {};
  constexpr bool kept = Row::own <= 8;  // both stay in FP32 registers between the two passes over the row
  Pack<float, vec> x[kept ? Row::pieces : 1], dy[kept ? Row::pieces : 1];
  const bool adds = a.add;
  float roots = 0;  // of 32 rows, one a lane
  T* dx = a.dx + begin * a.width;
  for (int turn = 0; rows.more(); rows.next(), ++turn, dx += a.width) {
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

// Calls f.operator()<T, Row>() for a storage type, with the widest pieces and fewest registers (at least `least`) for rows of this width.
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
          const unsigned threads = Row::threads(width);
          const std::int64_t at_once = std::int64_t(ctx.device.units) * std::max(1u, 1536 / threads);
          launch(cuda_stream(ctx.stream), rmsnorm_fwd<T, Row>,
                 {grid_of(std::min(rows, at_once)), threads, sizeof(Room) + Rows<T, Row, 1>::shared_bytes(width)},
                 {.x = t.x.as<T>(),
                  .weight = t.weight.as<float>(),
                  .y = t.y.as<T>(),
                  .rstd = t.rstd.as<float>(),
                  .rows = rows,
                  .width = int(width),
                  .eps = t.eps});
        },
        t.x.as<char>(), t.y.as<char>(), t.weight.as<char>());
  };
  t.x.dtype == DType::f32 ? start.template operator()<8>() : start.template operator()<16>();  // two pieces of 16 bytes a thread
}

void backward_cuda(const Backward& t, const Parts& parts, const Tensor& sums, Context& ctx) {
  const auto stream = cuda_stream(ctx.stream);
  const auto rows = t.x.shape[0], width = t.x.shape[1];
  if (width == 0) return;
  if (rows > 0)
    with_row<8>(
        t.x.dtype, width,
        [&]<class T, class Row>() {
          launch(stream, rmsnorm_bwd<T, Row>,
                 {grid_of(parts.count), Row::threads(width), sizeof(Room) + Rows<T, Row, 3>::shared_bytes(width)},
                 {.x = t.x.as<T>(),
                  .dy = t.dy.as<T>(),
                  .weight = t.weight.as<float>(),
                  .rstd = t.rstd.as<float>(),
                  .dx = t.dx.as<T>(),
                  .sums = sums.as<float>(),
                  .rows = rows,
                  .rows_each = parts.rows_each,
                  .width = int(width),
                  .per_width = 1.0f / float(width),
                  .add = t.into_dx == Gradient::accumulate});
        },
        t.x.as<char>(), t.dy.as<char>(), t.dx.as<char>(), t.weight.as<char>());
  parts::add_up(sums, parts, t.dweight, t.into_dweight, stream);
}

}  // namespace headroom::rmsnorm
