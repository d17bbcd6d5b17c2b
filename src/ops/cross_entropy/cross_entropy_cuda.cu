#include <algorithm>
#include <numbers>

#include "base/divide.h"
#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "gpu/reduce.cuh"
#include "gpu/tanh.cuh"
#include "gpu/vec.cuh"
#include "ops/cross_entropy/impl.h"

namespace headroom::cross_entropy {

namespace {

template <class L, class T>  // the dtypes of logits and of their gradient
struct Args {
  const L* logits;
  const int* targets;
  float* losses;
  T* dlogits;  // or null
  const double *loss_scale, *over;
  std::int64_t gradient_stride;
  int vocab, held;       // held, in shared memory: a multiple of what a block takes at once, or nothing
  float scale, softcap;  // softcap: where rows are capped

  __device__ float whole_scale() const {
    const float each = over ? float(double(scale) / *over) : scale;
    return loss_scale ? float(double(each) * *loss_scale) : each;
  }
};

__device__ float power_of_e(float x) {  // what is below 2⁻¹²⁶ is 0; the error grows with |x| as the value shrinks
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * std::numbers::log2e_v<float>));
  return y;
}

// The tanh of x / cap, of which a capped logit is cap times. Where all of a piece are near 0 no exponential is taken.
template <int n>
__device__ Pack<float, n> tanhs(Pack<float, n> v, float by) {  // by: 1 / cap
  float largest = 0;                                           // a NaN stays one either way
#pragma unroll
  for (float& x : v.at) largest = fmaxf(largest, fabsf(x *= by));
  if (largest < 0.625f) {
#pragma unroll
    for (float& x : v.at) x = tanh_below_5_8(x);
  } else {
#pragma unroll
    for (float& x : v.at) x = tanh_of(x);
  }
  return v;
}

// cross_entropy_rows — one block per row, which stays in registers, `own` logits a thread.
//   reads  logits once, targets     writes  losses, dlogits, which may share logits' memory (gradient_inside)
//   numerics  FP32, fixed order     limit  bandwidth
template <class A, int vec, int own, int threads, bool caps>
__global__ void __launch_bounds__(threads) cross_entropy_rows(const __grid_constant__ A a) {
  __shared__ float room[2][32];
  const std::int64_t row = blockIdx.x;
  const auto* x = a.logits + row * a.vocab;
  const int target = a.targets[row];
  Pack<float, vec> v[own / vec];
  const auto each = [&](auto&& f) {  // f(a piece of the thread, where it begins)
#pragma unroll
    for (int k = 0; k < own / vec; ++k)
      if (const int i = (k * threads + int(threadIdx.x)) * vec; i < a.vocab) f(v[k], i);
  };
  [[maybe_unused]] const float by = caps ? 1 / a.softcap : 1, cap = caps ? a.softcap : 1;
  each([&](auto& piece, int i) {  // capped rows: the tanhs
    piece = widened(load<vec>(x + i));
    if constexpr (caps) piece = tanhs(piece, by);
  });
  float top = -3.4028235e38f, sum = 0, at_target = 0;  // top is finite: −∞ minus it is −∞, not NaN
  each([&](auto& piece, int) {
    for (float value : piece.at) top = fmaxf(top, value);
  });
  const float highest = block_max(top, room[0]);
  each([&](auto& piece, int i) {
#pragma unroll
    for (int e = 0; e < vec; ++e) {
      if (i + e == target) at_target = piece.at[e];
      if constexpr (caps) {
        sum += power_of_e(cap * (piece.at[e] - highest));
      } else {
        piece.at[e] = power_of_e(piece.at[e] - highest);
        sum += piece.at[e];
      }
    }
  });
  sum = block_sum(sum, room[1]);
  if (max(target, 0) / vec % threads == int(threadIdx.x)) a.losses[row] = target < 0 ? 0 : logf(sum) + cap * (highest - at_target);
  if (!a.dlogits) return;

  auto* d = a.dlogits + row * a.gradient_stride;
  using T = std::remove_pointer_t<decltype(d)>;
  if (target < 0) return each([&](const auto&, int i) { store(d + i, Pack<T, vec>{}); });
  const float scale = a.whole_scale(), factor = scale / sum;
  each([&](const auto& piece, int i) {
    Pack<T, vec> out;
#pragma unroll
    for (int e = 0; e < vec; ++e) {
      const float subtracted = i + e == target ? scale : 0.0f;
      if constexpr (caps)
        out.at[e] = rounded<T>((power_of_e(cap * (piece.at[e] - highest)) * factor - subtracted) * slope_of_tanh(piece.at[e]));
      else
        out.at[e] = rounded<T>(piece.at[e] * factor - subtracted);
    }
    store(d + i, out);
  });
}

constexpr std::int64_t most_held_bytes = 96 * 1024;  // logits of a row that wait in shared memory: two blocks share a Hopper multiprocessor
constexpr int long_threads = 1024;

// cross_entropy_long_rows — the same for rows that do not fit registers: shared memory keeps them, and what does not fit there is read again.
// The maximum is a running one.
template <class A, int vec, bool caps>
__global__ void __launch_bounds__(long_threads) cross_entropy_long_rows(const __grid_constant__ A a) {
  extern __shared__ float4 held_memory[];
  __shared__ float room[2][32];
  constexpr int step = long_threads * vec;
  const auto* x = a.logits + std::int64_t(blockIdx.x) * a.vocab;
  using L = std::remove_const_t<std::remove_pointer_t<decltype(x)>>;
  L* held = reinterpret_cast<L*>(held_memory);
  const int target = a.targets[blockIdx.x], first = int(threadIdx.x) * vec;
  const float by = caps ? 1 / a.softcap : 1, cap = caps ? a.softcap : 1;
  const auto bend = [&](const Pack<float, vec>& v) {  // a capped logit is cap times its tanh
    if constexpr (caps)
      return tanhs(v, by);
    else
      return v;
  };
  const float raw_target = widened(x[max(target, 0)]), at_target = caps ? tanh_of(raw_target * by) : raw_target;
  float top = -3.4028235e38f, sum = 0;  // finite: −∞ minus it is −∞, not NaN
  const auto take = [&](const Pack<float, vec>& v) {
    float higher = top;
#pragma unroll
    for (int e = 0; e < vec; ++e) higher = fmaxf(higher, v.at[e]);
    sum *= power_of_e(cap * (top - higher));
    top = higher;
#pragma unroll
    for (int e = 0; e < vec; ++e) sum += power_of_e(cap * (v.at[e] - top));
  };
#pragma unroll 4
  for (int i = first; i < a.held; i += step) {
    const auto v = load<vec>(x + i);
    if (a.dlogits) store(held + i, v);
    take(bend(widened(v)));
  }
#pragma unroll 4
  for (int i = a.held + first; i < a.vocab; i += step) take(bend(widened(load<vec>(x + i))));
  const float highest = block_max(top, room[0]);
  sum = block_sum(sum * expf(cap * (top - highest)), room[1]);
  if (threadIdx.x == 0) a.losses[blockIdx.x] = target < 0 ? 0 : logf(sum) + cap * (highest - at_target);
  if (!a.dlogits) return;

  auto* d = a.dlogits + std::int64_t(blockIdx.x) * a.gradient_stride;
  using T = std::remove_pointer_t<decltype(d)>;
  if (target < 0) {  // every thread has read its logits
    for (int i = first; i < a.vocab; i += step) store(d + i, Pack<T, vec>{});
    return;
  }
  const float scale = a.whole_scale(), factor = scale / sum;
  const auto give = [&](int i, const Pack<float, vec>& unbent) {
    const Pack<float, vec> v = bend(unbent);
    Pack<T, vec> out;
#pragma unroll
    for (int e = 0; e < vec; ++e) {
      float slope = power_of_e(cap * (v.at[e] - highest)) * factor - (i + e == target ? scale : 0.0f);
      if constexpr (caps) slope *= slope_of_tanh(v.at[e]);
      out.at[e] = rounded<T>(slope);
    }
    store(d + i, out);
  };
  for (int i = first; i < a.held; i += step) give(i, widened(load<vec>(held + i)));
  // The rest, upwards: all threads read a step before any of it is written, and writes go to the same or lower addresses.
  for (int at = a.held; at < a.vocab; at += step) {
    const int i = at + first;
    Pack<float, vec> v;
    if (i < a.vocab) v = widened(load<vec>(x + i));
    __syncthreads();
    if (i < a.vocab) give(i, v);
  }
}

struct CapArgs {
  float* logits;
  std::int64_t count;
  float softcap;
};

__global__ void __launch_bounds__(256) cross_entropy_cap(const __grid_constant__ CapArgs a) {
  if (const std::int64_t i = std::int64_t(blockIdx.x) * 256 + threadIdx.x; i < a.count)
    a.logits[i] = a.softcap * tanh_of(a.logits[i] / a.softcap);
}

struct AddArgs {
  const float* losses;
  std::int64_t count;
  double scale;
  double* total;
  bool add;
  const double* over;
};

__global__ void __launch_bounds__(1024) cross_entropy_add_up(const __grid_constant__ AddArgs a) {
  __shared__ double room[32];
  double sum = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < a.count; i += 1024) sum += double(a.losses[i]);
  sum = block_sum(sum, room);
  if (threadIdx.x == 0) *a.total = (a.over ? a.scale / *a.over : a.scale) * sum + (a.add ? *a.total : 0.0);
}

}  // namespace

namespace {

template <class L, class T>
void run_typed(const Rows& t, cudaStream_t stream) {
  const auto rows = t.logits.shape[0], vocab = t.logits.shape[1];
  using A = Args<L, T>;
  const auto with_vec = [&]<int vec>() {  // elements of a 16-byte load; 1 where rows do not begin at multiples of it
    A args{.logits = t.logits.as<L>(),
           .targets = t.targets.as<int>(),
           .losses = t.losses.as<float>(),
           .dlogits = t.dlogits.as<T>(),
           .loss_scale = t.loss_scale,
           .over = t.over,
           .gradient_stride = t.dlogits.stride[0],
           .vocab = int(vocab),
           .held = 0,
           .scale = t.scale,
           .softcap = t.softcap};
    const bool caps = t.softcap > 0;
    const auto start = [&]<int own, int threads>() {
      constexpr int piece = vec < 4 ? vec : 4;
      launch(stream, caps ? cross_entropy_rows<A, piece, own, threads, true> : cross_entropy_rows<A, piece, own, threads, false>,
             {grid_of(rows), threads}, args);
    };
    if (vocab <= 8 * 128) return start.template operator()<8, 128>();
    if (vocab <= 16 * 256) return start.template operator()<16, 256>();
    if (vocab <= 20 * 512) return start.template operator()<20, 512>();
    if (vocab <= 32 * 512) return start.template operator()<32, 512>();
    constexpr std::int64_t each = vec * std::int64_t(long_threads), most_held = most_held_bytes / std::int64_t(sizeof(L));
    if (t.dlogits) args.held = int(vocab <= most_held ? vocab : most_held / each * each);
    launch(stream, caps ? cross_entropy_long_rows<A, vec, true> : cross_entropy_long_rows<A, vec, false>,
           {grid_of(rows), long_threads, std::size_t(args.held) * sizeof(L)}, args);
  };
  constexpr int most = 16 / int(sizeof(L));
  const bool wide = pieces_of<L>(vocab, t.logits.as<char>(), t.dlogits.as<char>()) > 1 && t.dlogits.stride[0] % most == 0;
  wide ? with_vec.template operator()<most>() : with_vec.template operator()<1>();
}

}  // namespace

void run_cuda(const Rows& t, Context& ctx) {
  if (t.logits.shape[0] == 0) return;
  const auto stream = cuda_stream(ctx.stream);
  with_float(t.logits.dtype, [&]<class L>() {
    if (!t.dlogits || t.dlogits.dtype == t.logits.dtype) return run_typed<L, L>(t, stream);
    if constexpr (std::is_same_v<L, float>) t.dlogits.dtype == DType::bf16 ? run_typed<L, bf16>(t, stream) : run_typed<L, f16>(t, stream);
  });
}

void cap_cuda(const Tensor& logits, float softcap, Context& ctx) {
  if (logits.count() == 0) return;
  launch(cuda_stream(ctx.stream), cross_entropy_cap, {grid_of(ceil_div(logits.count(), 256)), 256},
         {logits.as<float>(), logits.count(), softcap});
}

void add_up_cuda(const Tensor& losses, double scale, bool add, const Tensor& total, const double* over, Context& ctx) {
  launch(cuda_stream(ctx.stream), cross_entropy_add_up, {1, 1024},
         {losses.as<float>(), losses.count(), scale, total.as<double>(), add, over});
}

}  // namespace headroom::cross_entropy
