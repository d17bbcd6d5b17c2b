#include <algorithm>

#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "gpu/reduce.cuh"
#include "gpu/vec.cuh"
#include "ops/cross_entropy/impl.h"

namespace headroom::cross_entropy {

namespace {

template <class T>
struct Args {
  const float* logits;
  const int* targets;
  float* losses;
  T* dlogits;  // or null
  const double* loss_scale;
  std::int64_t gradient_stride;
  int vocab, held;  // held, in shared memory: a multiple of what a block takes at once, or nothing
  float scale;

  __device__ float whole_scale() const { return loss_scale ? float(double(scale) * *loss_scale) : scale; }
};

__device__ float power_of_e(float x) {  // what is below 2⁻¹²⁶ is 0; the error grows with |x| as the value shrinks
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
  return y;
}

// cross_entropy_rows — one block per row, which stays in registers, `own` logits a thread.
//   reads  logits once, targets     writes  losses, dlogits, which may lie in logits' memory, each row at its row's start
//   numerics  FP32, fixed order     limit  bandwidth
template <class T, int vec, int own, int threads>
__global__ void __launch_bounds__(threads) cross_entropy_rows(const __grid_constant__ Args<T> a) {
  __shared__ float room[2][32];
  const std::int64_t row = blockIdx.x;
  const float* x = a.logits + row * a.vocab;
  const int target = a.targets[row];
  Pack<float, vec> v[own / vec];
  const auto each = [&](auto&& f) {  // f(a piece of the thread, where it begins)
#pragma unroll
    for (int k = 0; k < own / vec; ++k)
      if (const int i = (k * threads + int(threadIdx.x)) * vec; i < a.vocab) f(v[k], i);
  };
  each([&](auto& piece, int i) { piece = load<vec>(x + i); });
  float top = -3.4028235e38f, sum = 0, at_target = 0;  // top is finite: −∞ minus it is −∞, not NaN
  each([&](auto& piece, int) {
    for (float value : piece.at) top = fmaxf(top, value);
  });
  const float highest = block_max(top, room[0]);
  each([&](auto& piece, int i) {
#pragma unroll
    for (int e = 0; e < vec; ++e) {
      if (i + e == target) at_target = piece.at[e];
      piece.at[e] = power_of_e(piece.at[e] - highest);
      sum += piece.at[e];
    }
  });
  sum = block_sum(sum, room[1]);
  if (target / vec % threads == int(threadIdx.x)) a.losses[row] = logf(sum) + (highest - at_target);
  if (!a.dlogits) return;

  const float scale = a.whole_scale(), factor = scale / sum;
  T* d = a.dlogits + row * a.gradient_stride;
  each([&](const auto& piece, int i) {
    Pack<T, vec> out;
#pragma unroll
    for (int e = 0; e < vec; ++e) out.at[e] = rounded<T>(piece.at[e] * factor - (i + e == target ? scale : 0.0f));
    store(d + i, out);
  });
}

constexpr std::int64_t most_held = 48 * 1024;  // logits of a row that wait in shared memory: 192 KiB of Hopper's 227
constexpr int long_threads = 1024;

// cross_entropy_long_rows — the same for rows that registers do not hold: they wait in shared memory, and what does not fit there is read
// again. The maximum is a running one.
template <class T, int vec>
__global__ void __launch_bounds__(long_threads) cross_entropy_long_rows(const __grid_constant__ Args<T> a) {
  extern __shared__ float4 held_memory[];
  __shared__ float room[2][32];
  constexpr int step = long_threads * vec;
  float* held = reinterpret_cast<float*>(held_memory);
  const float* x = a.logits + std::int64_t(blockIdx.x) * a.vocab;
  const int target = a.targets[blockIdx.x], first = int(threadIdx.x) * vec;
  const float at_target = x[target];
  float top = -3.4028235e38f, sum = 0;  // finite: −∞ minus it is −∞, not NaN
  const auto take = [&](const Pack<float, vec>& v) {
    float higher = top;
#pragma unroll
    for (int e = 0; e < vec; ++e) higher = fmaxf(higher, v.at[e]);
    sum *= power_of_e(top - higher), top = higher;
#pragma unroll
    for (int e = 0; e < vec; ++e) sum += power_of_e(v.at[e] - top);
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

  const float scale = a.whole_scale(), factor = scale / sum;
  T* d = a.dlogits + std::int64_t(blockIdx.x) * a.gradient_stride;
  const auto give = [&](int i, const Pack<float, vec>& v) {
    Pack<T, vec> out;
#pragma unroll
    for (int e = 0; e < vec; ++e) out.at[e] = rounded<T>(power_of_e(v.at[e] - highest) * factor - (i + e == target ? scale : 0.0f));
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
    const auto stream = static_cast<cudaStream_t>(ctx.stream);
    const auto with_vec = [&]<int vec>() {
      constexpr std::int64_t each = vec * long_threads;
      Args<T> args{t.logits.as<float>(),
                   t.targets.as<int>(),
                   t.losses.as<float>(),
                   t.dlogits.as<T>(),
                   t.loss_scale,
                   t.dlogits.stride[0],
                   int(vocab),
                   0,
                   t.scale};
      const auto start = [&]<int own, int threads>() {
        launch(stream, cross_entropy_rows<T, vec, own, threads>, {grid_of(rows), threads}, args);
      };
      if (vocab <= 8 * 128) return start.template operator()<8, 128>();
      if (vocab <= 16 * 256) return start.template operator()<16, 256>();
      if (vocab <= 20 * 512) return start.template operator()<20, 512>();
      if (vocab <= 32 * 512) return start.template operator()<32, 512>();
      if (t.dlogits) args.held = int(vocab <= most_held ? vocab : most_held / each * each);
      launch(stream, cross_entropy_long_rows<T, vec>, {grid_of(rows), long_threads, std::size_t(args.held) * sizeof(float)}, args);
    };
    const bool wide = pieces_of<float>(vocab, t.logits.as<char>(), t.dlogits.as<char>()) > 1 && t.dlogits.stride[0] % 4 == 0;
    wide ? with_vec.template operator()<4>() : with_vec.template operator()<1>();
  });
}

void add_up_cuda(const Tensor& losses, double scale, bool add, const Tensor& total, Context& ctx) {
  launch(static_cast<cudaStream_t>(ctx.stream), cross_entropy_add_up, {1, 1024},
         {losses.as<float>(), losses.count(), scale, total.as<double>(), add});
}

}  // namespace headroom::cross_entropy
