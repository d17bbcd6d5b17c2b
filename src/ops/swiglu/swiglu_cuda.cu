#include "base/divide.h"
#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "gpu/vec.cuh"
#include "ops/swiglu/element.cuh"
#include "ops/swiglu/impl.h"

namespace headroom::swiglu {

namespace {

constexpr int threads = 256, turns = 2;  // pieces of one row that a thread takes, all loaded before the first is used

template <class T>
struct Args {
  const T *gate_up, *dact;
  T *out, *again;  // act; or dgate_up, and act or null
  int width;
  unsigned pieces;  // blocks of one row
};

// swiglu_fwd, swiglu_bwd — element by element, a block takes threads · turns pieces of one row.
//   reads  gate, up, dact once     writes  act, or dgate, dup and, when asked, act     numerics  FP32     limit  bandwidth
template <class T, int vec>
__global__ void __launch_bounds__(threads) swiglu_fwd(const __grid_constant__ Args<T> a) {
  const std::int64_t row = blockIdx.x / a.pieces;
  const T *gate = a.gate_up + row * 2 * a.width, *up = gate + a.width;
  const int first = (int(blockIdx.x % a.pieces) * turns * threads + int(threadIdx.x)) * vec;
  Pack<T, vec> g[turns], u[turns];
#pragma unroll
  for (int k = 0; k < turns; ++k)
    if (const int i = first + k * threads * vec; i < a.width) {
      g[k] = load<vec>(gate + i);
      u[k] = load<vec>(up + i);
    }
#pragma unroll
  for (int k = 0; k < turns; ++k) {
    const int i = first + k * threads * vec;
    if (i >= a.width) return;
#pragma unroll
    for (int e = 0; e < vec; ++e) { g[k].at[e] = rounded<T>(product_of<T>(widened(g[k].at[e]), widened(u[k].at[e]))); }
    store(a.out + row * a.width + i, g[k]);
  }
}

template <class T, int vec>
__global__ void __launch_bounds__(threads) swiglu_bwd(const __grid_constant__ Args<T> a) {
  const std::int64_t row = blockIdx.x / a.pieces;
  const T *gate = a.gate_up + row * 2 * a.width, *up = gate + a.width;
  T *dgate = a.out + row * 2 * a.width, *dup = dgate + a.width;
  const int first = (int(blockIdx.x % a.pieces) * turns * threads + int(threadIdx.x)) * vec;
  Pack<T, vec> g[turns], u[turns], d[turns];
#pragma unroll
  for (int k = 0; k < turns; ++k)
    if (const int i = first + k * threads * vec; i < a.width) {
      g[k] = load<vec>(gate + i);
      u[k] = load<vec>(up + i);
      d[k] = load<vec>(a.dact + row * a.width + i);
    }
#pragma unroll
  for (int k = 0; k < turns; ++k) {
    const int i = first + k * threads * vec;
    if (i >= a.width) return;
#pragma unroll
    for (int e = 0; e < vec; ++e) {
      const float x = widened(g[k].at[e]), y = widened(u[k].at[e]);
      const ElementGradient d_of = gradient_of<T>(x, y, widened(d[k].at[e]));
      u[k].at[e] = rounded<T>(d_of.up);
      g[k].at[e] = rounded<T>(d_of.gate);
      d[k].at[e] = rounded<T>(product_of<T>(x, y));
    }
    if (a.again) store(a.again + row * a.width + i, d[k]);
    store(dup + i, u[k]);
    store(dgate + i, g[k]);  // may be gate_up: a thread has read what it overwrites, and no other thread reads it
  }
}

template <class F>
void start(const Tensor& gate_up, const Tensor& half, const Tensor& out, const Tensor& dact, const Tensor& again, F&& f) {
  const auto rows = half.shape[0], width = half.shape[1];
  if (half.count() == 0) return;
  with_float(half.dtype, [&]<class T>() {
    const int vec = pieces_of<T>(width, gate_up.as<char>(), out.as<char>(), dact.as<char>(), again.as<char>());
    const std::int64_t elements = std::int64_t(vec) * threads * turns, pieces = ceil_div(width, elements);
    const Args<T> args{.gate_up = gate_up.as<T>(),
                       .dact = dact.as<T>(),
                       .out = out.as<T>(),
                       .again = again.as<T>(),
                       .width = int(width),
                       .pieces = unsigned(pieces)};
    if (vec > 1)
      f.template operator()<T, 16 / sizeof(T)>(grid_of(rows * pieces), args);
    else
      f.template operator()<T, 1>(grid_of(rows * pieces), args);
  });
}

}  // namespace

void forward_cuda(const Forward& t, Context& ctx) {
  start(t.gate_up, t.act, t.act, {}, {}, [&]<class T, int vec>(dim3 grid, const Args<T>& args) {
    launch(cuda_stream(ctx.stream), swiglu_fwd<T, vec>, {grid, threads}, args);
  });
}

void backward_cuda(const Backward& t, Context& ctx) {
  start(t.gate_up, t.dact, t.dgate_up, t.dact, t.act, [&]<class T, int vec>(dim3 grid, const Args<T>& args) {
    launch(cuda_stream(ctx.stream), swiglu_bwd<T, vec>, {grid, threads}, args);
  });
}

}  // namespace headroom::swiglu
