#include <algorithm>

#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "gpu/vec.cuh"
#include "ops/rope/impl.h"

namespace headroom::rope {

namespace {

constexpr int most_threads = 512;

template <class T>
struct Args {
  T* x;
  const float* table;
  const int* positions;  // every row's; null: its number in its sequence
  std::int64_t len, batch_stride, row_stride, head_stride;
  int heads, half, pieces;  // pieces of half a head
  float sign;
};

// rope_rotate — one block per position of one sequence, all heads: its row of the table stays in L1.
//   reads, writes  x once     numerics  FP32     limit  bandwidth
template <class T, int vec>
__global__ void __launch_bounds__(most_threads) rope_rotate(const __grid_constant__ Args<T> a) {
  const std::int64_t batch = blockIdx.x / a.len, row = blockIdx.x % a.len, position = a.positions ? a.positions[blockIdx.x] : row;
  const float *cosine = a.table + position * 2 * a.half, *sine = cosine + a.half;
  T* x = a.x + batch * a.batch_stride + row * a.row_stride;
  for (int at = int(threadIdx.x); at < a.heads * a.pieces; at += int(blockDim.x)) {
    const int i = at % a.pieces * vec;
    T *first = x + at / a.pieces * a.head_stride + i, *second = first + a.half;
    auto u = load<vec>(first), v = load<vec>(second);
    const auto c = load<vec>(cosine + i), s = load<vec>(sine + i);
#pragma unroll
    for (int e = 0; e < vec; ++e) {
      const float p = widened(u.at[e]), q = widened(v.at[e]), sin = a.sign * s.at[e];
      u.at[e] = rounded<T>(p * c.at[e] - q * sin);
      v.at[e] = rounded<T>(q * c.at[e] + p * sin);
    }
    store(first, u);
    store(second, v);
  }
}

struct FillArgs {
  float* table;
  std::int64_t count;  // positions · half
  int half;
  double theta;
  std::int64_t first;  // position of the table's first row
};

__global__ void __launch_bounds__(256) rope_fill(const __grid_constant__ FillArgs a) {
  const std::int64_t at = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= a.count) return;
  const std::int64_t position = at / a.half, i = at % a.half;
  const double angle = double(a.first + position) * pow(a.theta, -double(i) / double(a.half));
  float* row = a.table + position * 2 * a.half;
  row[i] = float(cos(angle));
  row[a.half + i] = float(sin(angle));
}

}  // namespace

void fill_cuda(const Tensor& table, double theta, std::int64_t first, Context& ctx) {
  const auto count = table.count() / 2;
  if (count == 0) return;
  launch(cuda_stream(ctx.stream), rope_fill, {grid_of((count + 255) / 256), 256},
         {table.as<float>(), count, int(table.shape[1] / 2), theta, first});
}

void rotate_cuda(const Tensor& x, const Tensor& table, Turn turn, const Tensor& positions, Context& ctx) {
  if (x.count() == 0) return;
  const auto half = x.shape[3] / 2;
  with_float(x.dtype, [&]<class T>() {
    const auto start = [&]<int vec>() {
      const auto pieces = half / vec, items = x.shape[2] * pieces;
      launch(cuda_stream(ctx.stream), rope_rotate<T, vec>,
             {grid_of(x.shape[0] * x.shape[1]), unsigned(std::clamp<std::int64_t>((items + 31) / 32 * 32, 32, most_threads))},
             {.x = x.as<T>(),
              .table = table.as<float>(),
              .positions = positions.as<int>(),
              .len = x.shape[1],
              .batch_stride = x.stride[0],
              .row_stride = x.stride[1],
              .head_stride = x.stride[2],
              .heads = int(x.shape[2]),
              .half = int(half),
              .pieces = int(pieces),
              .sign = turn == Turn::forward ? 1.0f : -1.0f});
    };
    constexpr int vec = 16 / sizeof(T);
    const bool apart = x.stride[0] % vec == 0 && x.stride[1] % vec == 0 && x.stride[2] % vec == 0;
    if (apart && pieces_of<T>(half, x.as<char>(), table.as<char>()) > 1)
      start.template operator()<vec>();
    else
      start.template operator()<1>();
  });
}

}  // namespace headroom::rope
