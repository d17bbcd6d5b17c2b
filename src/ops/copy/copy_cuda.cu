#include "base/divide.h"
#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "gpu/vec.cuh"
#include "ops/copy/impl.h"
#include "ops/copy/split.h"

namespace headroom::copy {

namespace {

constexpr int threads = 256;

template <class From, class To>
struct Args {
  const From* from;
  To* to;
  std::int64_t count;
};

// copy_rounded — a few neighbouring elements a thread.     limit  bandwidth
template <int vec, class From, class To>
__global__ void __launch_bounds__(threads) copy_rounded(const __grid_constant__ Args<From, To> a) {
  const std::int64_t i = (std::int64_t(blockIdx.x) * threads + threadIdx.x) * vec;
  if (i >= a.count) return;
  const auto x = load<vec>(a.from + i);
  Pack<To, vec> y;
#pragma unroll
  for (int e = 0; e < vec; ++e) y.at[e] = rounded<To>(widened(x.at[e]));
  store(a.to + i, y);
}

struct PlainArgs {
  const uint4* from;
  uint4* to;
  std::int64_t count;
};

// copy_plain — 64 bytes a thread, in pieces of 16.     limit  bandwidth
__global__ void __launch_bounds__(threads) copy_plain(const __grid_constant__ PlainArgs a) {
  constexpr int turns = 4;
  const std::int64_t first = std::int64_t(blockIdx.x) * threads * turns + threadIdx.x;
  uint4 x[turns];
#pragma unroll
  for (int k = 0; k < turns; ++k)
    if (first + k * threads < a.count) x[k] = a.from[first + k * threads];
#pragma unroll
  for (int k = 0; k < turns; ++k)
    if (first + k * threads < a.count) a.to[first + k * threads] = x[k];
}

struct SplitArgs {
  const float* from;
  bf16* upper;
  std::uint16_t* rest;
  std::int64_t count;
};

__global__ void __launch_bounds__(threads) copy_split(const __grid_constant__ SplitArgs a) {
  const std::int64_t i = std::int64_t(blockIdx.x) * threads + threadIdx.x;
  if (i >= a.count) return;
  const Halves h = split(a.from[i]);
  a.upper[i] = h.upper;
  a.rest[i] = h.rest;
}

}  // namespace

void split_cuda(const Tensor& from, const Tensor& upper, const Tensor& rest, Context& ctx) {
  if (from.count() == 0) return;
  launch(cuda_stream(ctx.stream), copy_split, {grid_of(ceil_div(from.count(), threads)), threads},
         {from.as<float>(), upper.as<bf16>(), rest.as<std::uint16_t>(), from.count()});
}

void copy_cuda(const Tensor& from, const Tensor& to, Context& ctx) {
  const auto stream = cuda_stream(ctx.stream);
  if (from.count() == 0) return;
  if (from.dtype == to.dtype) {
    if (from.bytes() % 16 != 0 || pieces_of<char>(16, from.as<char>(), to.as<char>()) == 1)
      return cuda(cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDeviceToDevice, stream));
    const auto count = std::int64_t(from.bytes() / 16);
    return launch(stream, copy_plain, {grid_of(ceil_div(count, 4 * threads)), threads}, {from.as<uint4>(), to.as<uint4>(), count});
  }
  with_float(from.dtype, [&]<class From>() {
    with_float(to.dtype, [&]<class To>() {
      const Args<From, To> args{from.as<From>(), to.as<To>(), from.count()};
      constexpr int vec = 4;
      const bool wide = args.count % vec == 0 && pieces_of<char>(16, args.from, args.to) > 1;
      const std::int64_t blocks = ceil_div(args.count / (wide ? vec : 1), threads);
      launch(stream, wide ? copy_rounded<vec, From, To> : copy_rounded<1, From, To>, {grid_of(blocks), threads}, args);
    });
  });
}

}  // namespace headroom::copy
