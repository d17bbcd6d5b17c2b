#include <algorithm>

#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "gpu/reduce.cuh"
#include "gpu/vec.cuh"
#include "ops/cross_entropy/impl.h"

namespace headroom::cross_entropy {

namespace {

constexpr std::int64_t most_held = 48 * 1024;  // logits of a row that wait in shared memory: 192 KiB of Hopper's 227

template <class T>
struct Args {
  const float* logits;
  const int* targets;
  float* losses;
  T* dlogits;  // or null
  const double* loss_scale;
  std::int64_t gradient_stride;
  int vocab, held;  // held: a multiple of what a block takes at once, or all
  float scale;
};

// cross_entropy_rows — one block per row, which waits in shared memory for its gradient; what does not fit there is read again.
//   reads  logits once (what is held), targets     writes  losses, dlogits, which may lie in logits' memory, each row at its row's start
//   numerics  FP32, running maximum, fixed order; the error of __expf grows with the distance from the maximum as the share shrinks
//   limit     bandwidth
template <class T, int vec, int threads>
__global__ void __launch_bounds__(threads) cross_entropy_rows(const __grid_constant__ Args<T> a) {
  extern __shared__ float4 held_memory[];
  __shared__ float room[2][32];
  constexpr int step = threads * vec;
  float* held = reinterpret_cast<float*>(held_memory);
  const float* x = a.logits + std::int64_t(blockIdx.x) * a.vocab;
  const int target = a.targets[blockIdx.x], first = int(threadIdx.x) * vec;
  const float at_target = x[target];
  float top = -3.4028235e38f, sum = 0;  // finite: −∞ minus it is −∞, not NaN
  const auto take = [&](const Pack<float, vec>& v) {
    float higher = top;
#pragma unroll
    for (int e = 0; e < vec; ++e) higher = fmaxf(higher, v.at[e]);
    sum *= __expf(top - higher), top = higher;
#pragma unroll
    for (int e = 0; e < vec; ++e) sum += __expf(v.at[e] - top);
  };
#pragma unroll 4
  for (int i = first; i < a.held; i += step) {
    const auto v = load<vec>(x + i);
    if (a.dlogits) store(held + i, v);
    take(v);
  }
#pragma unroll 4
  for (int i = a.held + first; i < a.vocab; i += step) take(load<vec>(x + i));
  const float highest = block_max(top, room[0]);
  sum = block_sum(sum * expf(top - highest), room[1]);
  if (threadIdx.x == 0) a.losses[blockIdx.x] = logf(sum) + (highest - at_target);
  if (!a.dlogits) return;

  const float scale = a.loss_scale ? float(double(a.scale) * *a.loss_scale) : a.scale, factor = scale / sum;
  T* d = a.dlogits + std::int64_t(blockIdx.x) * a.gradient_stride;
  const auto give = [&](int i, const Pack<float, vec>& v) {
    Pack<T, vec> out;
#pragma unroll
    for (int e = 0; e < vec; ++e) out.at[e] = rounded<T>(__expf(v.at[e] - highest) * factor - (i + e == target ? scale : 0.0f));
    store(d + i, out);
  };
  for (int i = first; i < a.held; i += step) give(i, load<vec>(held + i));
  // The rest goes upwards together: a step is read by all before any of it is written, and what is written lies at or before it.
  for (int at = a.held; at < a.vocab; at += step) {
    const int i = at + first;
    Pack<float, vec> v;
    if (i < a.vocab) v = load<vec>(x + i);
    __syncthreads();
    if (i < a.vocab) give(i, v);
  }
}

struct AddArgs {
  const float* losses;
  std::int64_t count;
  double scale;
  double* total;
  bool add;
};

__global__ void __launch_bounds__(1024) cross_entropy_add_up(const __grid_constant__ AddArgs a) {
  __shared__ double room[32];
  double sum = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < a.count; i += 1024) sum += double(a.losses[i]);
  sum = block_sum(sum, room);
  if (threadIdx.x == 0) *a.total = a.scale * sum + (a.add ? *a.total : 0.0);
}

}  // namespace

void run_cuda(const Rows& t, Context& ctx) {
  const auto rows = t.logits.shape[0], vocab = t.logits.shape[1];
  if (rows == 0) return;
  with_float(t.dlogits ? t.dlogits.dtype : DType::f32, [&]<class T>() {
    const auto start = [&]<int vec, int threads>() {
      const auto held = vocab <= most_held ? vocab : most_held / (vec * threads) * (vec * threads);
      launch(static_cast<cudaStream_t>(ctx.stream), cross_entropy_rows<T, vec, threads>,
             {grid_of(rows), threads, t.dlogits ? std::size_t(held) * sizeof(float) : 0},
             {t.logits.as<float>(), t.targets.as<int>(), t.losses.as<float>(), t.dlogits.as<T>(), t.loss_scale, t.dlogits.stride[0],
              int(vocab), int(held), t.scale});
    };
    const bool wide = pieces_of<float>(vocab, t.logits.as<char>(), t.dlogits.as<char>()) > 1 && t.dlogits.stride[0] % 4 == 0;
    const bool few = vocab <= 16384;  // several rows a multiprocessor, or one that takes all of its shared memory
    if (wide)
      few ? start.template operator()<4, 256>() : start.template operator()<4, 1024>();
    else
      few ? start.template operator()<1, 256>() : start.template operator()<1, 1024>();
  });
}

void add_up_cuda(const Tensor& losses, double scale, bool add, const Tensor& total, Context& ctx) {
  launch(static_cast<cudaStream_t>(ctx.stream), cross_entropy_add_up, {1, 1024},
         {losses.as<float>(), losses.count(), scale, total.as<double>(), add});
}

}  // namespace headroom::cross_entropy
