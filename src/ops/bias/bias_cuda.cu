#include "base/divide.h"
#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "gpu/vec.cuh"
#include "ops/bias/impl.h"
#include "ops/parts.cuh"

namespace headroom::bias {

namespace {

constexpr int threads = 128;

template <class T>
struct Args {
  T* rows;
  float* bias;  // read; or the sums of a part, written
  std::int64_t count, rows_each;
  int width, pieces;  // pieces: blocks side by side
};

// bias_add — y[row, :] += bias, a thread takes its columns of a few rows.     limit  bandwidth
template <class T, int vec>
__global__ void __launch_bounds__(threads) bias_add(const __grid_constant__ Args<T> a) {
  const int i = (int(blockIdx.x % a.pieces) * threads + int(threadIdx.x)) * vec;
  if (i >= a.width) return;
  const auto b = load<vec>(a.bias + i);
  const std::int64_t begin = blockIdx.x / a.pieces * a.rows_each, end = min(a.count, begin + a.rows_each);
#pragma unroll 4
  for (std::int64_t row = begin; row < end; ++row) {
    auto y = load<vec>(a.rows + row * a.width + i);
#pragma unroll
    for (int e = 0; e < vec; ++e) y.at[e] = rounded<T>(widened(y.at[e]) + b.at[e]);
    store(a.rows + row * a.width + i, y);
  }
}

// bias_bwd — the sums of one part's rows, a thread takes its columns, rows in order.     limit  bandwidth
template <class T, int vec>
__global__ void __launch_bounds__(threads) bias_bwd(const __grid_constant__ Args<T> a) {
  const int i = (int(blockIdx.x % a.pieces) * threads + int(threadIdx.x)) * vec;
  if (i >= a.width) return;
  const std::int64_t part = blockIdx.x / a.pieces, begin = part * a.rows_each, end = min(a.count, begin + a.rows_each);
  Pack<float, vec> sum{};
#pragma unroll 8
  for (std::int64_t row = begin; row < end; ++row) {
    const auto y = load<vec>(a.rows + row * a.width + i);
#pragma unroll
    for (int e = 0; e < vec; ++e) sum.at[e] += widened(y.at[e]);
  }
  store(a.bias + part * a.width + i, sum);
}

template <class F>
void start(const Tensor& rows, const Tensor& bias, const Parts& parts, F&& f) {
  const auto width = rows.shape[1];
  if (rows.count() == 0) return;
  with_float(rows.dtype, [&]<class T>() {
    const int vec = pieces_of<T>(width, rows.as<char>(), bias.as<char>());
    const std::int64_t pieces = ceil_div(width, vec * threads);
    const Args<T> args{.rows = rows.as<T>(),
                       .bias = bias.as<float>(),
                       .count = rows.shape[0],
                       .rows_each = parts.rows_each,
                       .width = int(width),
                       .pieces = int(pieces)};
    if (vec > 1)
      f.template operator()<T, 16 / sizeof(T)>(grid_of(parts.count * pieces), args);
    else
      f.template operator()<T, 1>(grid_of(parts.count * pieces), args);
  });
}

}  // namespace

void add_cuda(const Tensor& y, const Tensor& bias, Context& ctx) {
  constexpr std::int64_t each = 4;
  start(y, bias, {each, ceil_div(y.shape[0], each)}, [&]<class T, int vec>(dim3 grid, const Args<T>& args) {
    launch(cuda_stream(ctx.stream), bias_add<T, vec>, {grid, threads}, args);
  });
}

void backward_cuda(const Tensor& dy, const Tensor& dbias, Gradient into, const Parts& parts, const Tensor& sums, Context& ctx) {
  const auto stream = cuda_stream(ctx.stream);
  start(dy, sums, parts, [&]<class T, int vec>(dim3 grid, const Args<T>& args) {
    launch(stream, bias_bwd<T, vec>, {grid, threads}, args);
  });
  parts::add_up(sums, parts, dbias, into, stream);
}

}  // namespace headroom::bias
