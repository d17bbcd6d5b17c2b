#include <algorithm>
#include <iterator>
#include <vector>

#include "base/divide.h"
#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "gpu/reduce.cuh"
#include "gpu/vec.cuh"
#include "ops/adamw/exact_sum.h"
#include "ops/adamw/impl.h"
#include "ops/adamw/prepare.h"
#include "ops/adamw/step.cuh"
#include "ops/adamw/step_narrow.cuh"
#include "ops/adamw/table.cuh"
#include "ops/copy/split.h"

namespace headroom::adamw {

namespace {

constexpr int vec = 4;
constexpr unsigned norm_blocks = 1024;

bool aligned(std::initializer_list<const void*> all) {
  return std::all_of(all.begin(), all.end(), [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; });
}

struct Squared {
  const void* at;
  std::int64_t count;
  unsigned first;
  bool aligned, narrow;  // narrow: of the launch's type T, else FP32
};
struct NormArgs {
  std::int64_t* sum;
  Table<Squared, 16384, 1024> table;
};

// The sum of squares of one unit, by one warp. Which lane adds which elements, and in which order, does not depend on the unit's address.
template <class G>
__device__ double squares(const G* g, int n, bool aligned) {
  constexpr int turns = int(unit) / (32 * vec);  // loads under way at once
  const int lane = int(threadIdx.x) % 32;
  float part[vec] = {};
  if (aligned && n == unit) {
    Pack<G, vec> x[turns];
#pragma unroll
    for (int k = 0; k < turns; ++k) x[k] = load<vec>(g + (k * 32 + lane) * vec);
#pragma unroll
    for (int k = 0; k < turns; ++k)
#pragma unroll
      for (int e = 0; e < vec; ++e) part[e] = fmaf(widened(x[k].at[e]), widened(x[k].at[e]), part[e]);
  } else {
#pragma unroll
    for (int k = 0; k < turns; ++k)
#pragma unroll
      for (int e = 0; e < vec; ++e) {
        const int i = (k * 32 + lane) * vec + e;
        const float x = i < n ? widened(g[i]) : 0.0f;
        part[e] = fmaf(x, x, part[e]);
      }
  }
  return warp_sum(double((part[0] + part[1]) + (part[2] + part[3])));
}

__global__ void adamw_clear(std::int64_t* sum) {
  if (threadIdx.x < ExactSum::limbs) sum[threadIdx.x] = 0;
}

// adamw_norm — sum += Σ g² over every gradient: FP32 within a lane's share of a unit, FP64 within a unit, exact beyond (exact_sum.h), so blocks may
// add in any order.
//   reads  every gradient once     limit  bandwidth
template <class T>
__global__ void __launch_bounds__(threads) adamw_norm(const __grid_constant__ NormArgs a) {
  constexpr int piece = decltype(a.table)::piece, warps = threads / 32;
  __shared__ std::int64_t room[warps][ExactSum::limbs];
  for (int i = int(threadIdx.x); i < warps * ExactSum::limbs; i += threads) (&room[0][0])[i] = 0;
  __syncthreads();
  const int warp = int(threadIdx.x) / 32;
  for (unsigned p = blockIdx.x; p < a.table.pieces; p += gridDim.x) {
    const Squared& t = a.table.of(p);
    const std::int64_t begin = std::int64_t(p - t.first) * piece;
    const int n = int(min(std::int64_t(piece), t.count - begin));
    for (int u = warp * int(unit); u < n; u += warps * int(unit)) {
      const int many = min(n - u, int(unit));
      const double sum = t.narrow ? squares(static_cast<const T*>(t.at) + begin + u, many, t.aligned)
                                  : squares(static_cast<const float*>(t.at) + begin + u, many, t.aligned);
      if (threadIdx.x % 32 == 0) ExactSum::add(room[warp], sum);
    }
  }
  __syncthreads();
  if (threadIdx.x >= ExactSum::limbs) return;
  std::int64_t sum = 0;
  for (int w = 0; w < warps; ++w) sum += room[w][threadIdx.x];
  if (sum != 0) atomicAdd(reinterpret_cast<unsigned long long*>(a.sum + threadIdx.x), static_cast<unsigned long long>(sum));
}

struct PrepareArgs {
  const std::int64_t* sums;  // or null
  int ranks;
  double* state;
  Numbers* numbers;
  int zeros;  // words behind the numbers
  Hyper hyper;
};

// adamw_prepare — one thread: the norm, clipping, loss scale, corrections. The others of its block: zeros.
__global__ void adamw_prepare(const __grid_constant__ PrepareArgs a) {
  for (int i = int(threadIdx.x); i < a.zeros; i += int(blockDim.x)) reinterpret_cast<int*>(a.numbers + 1)[i] = 0;
  if (threadIdx.x == 0) *a.numbers = prepare(a.state, a.sums ? ExactSum::value(a.sums, a.ranks) : 0, a.hyper);
}

template <class T>
struct Parameter {
  const void* grad;    // FP32, or narrow: T
  std::int64_t apart;  // distance of the parts that add up to the gradient
  float *master, *m, *v;
  T* copy;              // or null
  std::uint16_t* rest;  // or null; else master is null
  std::int64_t count;
  unsigned first;
  bool decay, aligned, narrow;
};
template <class T>
struct StepArgs {
  const Numbers* numbers;
  int parts;
  Table<Parameter<T>, 4096, 440> table;
};

// A gradient, or the sum of its parts in order.
template <bool in_parts, class G>
struct Source {
  const G* at;
  std::int64_t apart;
  int parts;
  template <int n>
  __device__ Pack<float, n> pack(int i) const {
    Pack<float, n> sum;
    const auto first = load<n>(at + i);
#pragma unroll
    for (int e = 0; e < n; ++e) sum.at[e] = widened(first.at[e]);
    if constexpr (in_parts)
      for (int p = 1; p < parts; ++p) {
        const auto x = load<n>(at + p * apart + i);
#pragma unroll
        for (int e = 0; e < n; ++e) sum.at[e] = __fadd_rn(sum.at[e], widened(x.at[e]));
      }
    return sum;
  }
  __device__ float one(int i) const {
    float sum = widened(at[i]);
    if constexpr (in_parts)
      for (int p = 1; p < parts; ++p) sum = __fadd_rn(sum, widened(at[p * apart + i]));
    return sum;
  }
};

// The weight in two halves: a bf16 copy and the rest of its FP32 bits.
template <class Grad>
__device__ void step_halves(const Numbers& k, float keep, const Parameter<bf16>& t, const Grad& grad, std::int64_t begin, int n,
                            int whole) {
  float *first = t.m + begin, *second = t.v + begin;
  bf16* copy = t.copy + begin;
  std::uint16_t* rest = t.rest + begin;
  const auto one = [&](float g, bf16& upper, std::uint16_t& lower, float& m, float& v) {
    float w = copy::join({upper, lower});
    advance(k, keep, g, w, m, v);
    const copy::Halves halves = copy::split(w);
    upper = halves.upper;
    lower = halves.rest;
  };
#pragma unroll 2
  for (int i = int(threadIdx.x) * vec; i < whole; i += threads * vec) {
    const auto g = grad.template pack<vec>(i);
    auto m = load<vec>(first + i), v = load<vec>(second + i);
    auto upper = load<vec>(copy + i);
    auto lower = load<vec>(rest + i);
#pragma unroll
    for (int e = 0; e < vec; ++e) one(g.at[e], upper.at[e], lower.at[e], m.at[e], v.at[e]);
    store(first + i, m), store(second + i, v), store(copy + i, upper), store(rest + i, lower);
  }
  for (int i = whole + int(threadIdx.x); i < n; i += threads) one(grad.one(i), copy[i], rest[i], first[i], second[i]);
}

template <bool in_parts, class T, class G>
__device__ void step_piece(const Numbers& k, const Parameter<T>& t, int parts, std::int64_t begin, int n) {
  const int whole = t.aligned ? n / vec * vec : 0;
  const float keep = t.decay ? k.keep : 1.0f;
  const Source<in_parts, G> grad{static_cast<const G*>(t.grad) + begin, t.apart, parts};
  float *master = t.master ? t.master + begin : nullptr, *first = t.m + begin, *second = t.v + begin;
  T* copy = t.copy ? t.copy + begin : nullptr;
  if constexpr (std::is_same_v<T, bf16>)
    if (t.rest) return step_halves(k, keep, t, grad, begin, n, whole);
#pragma unroll 2
  for (int i = int(threadIdx.x) * vec; i < whole; i += threads * vec) {
    const auto g = grad.template pack<vec>(i);
    auto w = load<vec>(master + i), m = load<vec>(first + i), v = load<vec>(second + i);
    Pack<T, vec> narrow;
#pragma unroll
    for (int e = 0; e < vec; ++e) {
      advance(k, keep, g.at[e], w.at[e], m.at[e], v.at[e]);
      narrow.at[e] = rounded<T>(w.at[e]);
    }
    store(master + i, w);
    store(first + i, m);
    store(second + i, v);
    if (copy) store(copy + i, narrow);
  }
  for (int i = whole + int(threadIdx.x); i < n; i += threads) {
    advance(k, keep, grad.one(i), master[i], first[i], second[i]);
    if (copy) copy[i] = rounded<T>(master[i]);
  }
}

// adamw_step — one block per piece of 4096 elements of one parameter.
//   reads  gradient, weight, moments     writes  weight, moments, copy
//   limit  bandwidth: 28 bytes an element, 30 with a 16-bit copy, 28 in halves; 2 fewer with a 16-bit gradient, one more gradient for each part
template <class T, bool in_parts>
__global__ void __launch_bounds__(threads) adamw_step(const __grid_constant__ StepArgs<T> a) {
  const Numbers k = *a.numbers;
  if (k.go == 0) return;
  const Parameter<T>& t = a.table.of(blockIdx.x);
  constexpr int piece = decltype(a.table)::piece;
  const std::int64_t begin = std::int64_t(blockIdx.x - t.first) * piece;
  const int n = int(min(std::int64_t(piece), t.count - begin));
  t.narrow ? step_piece<in_parts, T, T>(k, t, a.parts, begin, n) : step_piece<in_parts, T, float>(k, t, a.parts, begin, n);
}

struct FieldArgs {
  double* state;
  double value;
  int field;
  bool clear;
};

__global__ void adamw_field(const __grid_constant__ FieldArgs a) {
  if (a.clear)
    for (int f = 0; f < state_size; ++f) a.state[f] = 0;
  a.state[a.field] = a.value;
}

void set(const Tensor& state, Field field, double value, bool clear, Context& ctx) {
  launch(cuda_stream(ctx.stream), adamw_field, {1, 1}, {state.as<double>(), value, int(field), clear});
}

// Launches of full tables, most often one: tensors(add) calls add for each, start(table) puts a table on the stream.
template <class Table, class Item, class Start>
void in_tables(std::span<const Update> all, Table& table, Item&& item, Start&& start) {
  for (const Update& t : all) {
    if (t.grad.count() == 0) continue;
    if (table.add(item(t))) continue;
    start();
    table.count = 0;
    table.pieces = 0;
    table.add(item(t));
  }
  start();
}

// The type of copies and of narrow gradients, which is one for all parameters.
DType type_of(std::span<const Update> all) {
  const auto copied = std::find_if(all.begin(), all.end(), [](const Update& t) { return bool(t.copy); });
  return copied == all.end() ? DType::f32 : copied->copy.dtype;
}

}  // namespace

void start_cuda(const Tensor& state, double scale, Context& ctx) { set(state, loss_scale, scale, true, ctx); }
void set_cuda(const Tensor& state, Field field, double value, Context& ctx) { set(state, field, value, false, ctx); }

void squares_cuda(std::span<const Update> all, std::int64_t* sum, Context& ctx) {
  const auto stream = cuda_stream(ctx.stream);
  launch(stream, adamw_clear, {1, 32}, sum);
  with_float(type_of(all), [&]<class T>() {
    NormArgs norm{sum, {}};
    in_tables(
        all, norm.table,
        [](const Update& t) {
          return Squared{t.grad.data, t.grad.count(), 0, aligned({t.grad.data}), t.grad.dtype != DType::f32};
        },
        [&] {
          if (norm.table.pieces > 0) launch(stream, adamw_norm<T>, {std::min(norm.table.pieces, norm_blocks), threads}, norm);
        });
  });
}

void begin_cuda(const Tensor& state, const Hyper& h, const Tensor& sums, const Tensor& numbers, Context& ctx) {
  const int zeros = int(numbers.count() - std::int64_t(sizeof(Numbers) / sizeof(float)));
  launch(cuda_stream(ctx.stream), adamw_prepare, {1, 128},
         {sums.as<std::int64_t>(), int(sums.shape[0]), state.as<double>(), numbers.as<Numbers>(), zeros, h});
}

namespace {

template <class T, bool in_parts>
void start_step(std::span<const Update> all, const Tensor& numbers, cudaStream_t stream) {
  StepArgs<T> step{numbers.as<Numbers>(), all.empty() ? 1 : all[0].parts, {}};
  in_tables(
      all, step.table,
      [](const Update& t) {
        return Parameter<T>{t.grad.data,
                            t.apart,
                            t.master.as<float>(),
                            t.m.as<float>(),
                            t.v.as<float>(),
                            t.copy.as<T>(),
                            t.rest.as<std::uint16_t>(),
                            t.grad.count(),
                            0,
                            t.decay,
                            aligned({t.grad.data, t.master.data, t.m.data, t.v.data, t.copy.data, t.rest.data}) &&
                                t.apart * std::int64_t(size_of(t.grad.dtype)) % 16 == 0,
                            t.grad.dtype != DType::f32};
      },
      [&] {
        if (step.table.pieces > 0) launch(stream, adamw_step<T, in_parts>, {grid_of(step.table.pieces), threads}, step);
      });
}

template <class T, bool in_parts, bool codes>
void start_narrow(std::span<const Update> all, const Tensor& numbers, cudaStream_t stream) {
  NarrowArgs<T> step{numbers.as<Numbers>(), all.empty() ? 1 : all[0].parts, {}};
  in_tables(
      all, step.table,
      [](const Update& t) {
        return NarrowParameter<T>{.grad = t.grad.data,
                                  .apart = t.apart,
                                  .master = t.master.as<float>(),
                                  .m = t.m.data,
                                  .v = t.v.data,
                                  .m_scale = t.m_scale.as<float>(),
                                  .v_scale = t.v_scale.as<float>(),
                                  .copy = t.copy.as<T>(),
                                  .rest = t.rest.as<std::uint16_t>(),
                                  .count = t.grad.count(),
                                  .element = t.first,
                                  .first = 0,
                                  .parameter = t.parameter,
                                  .decay = t.decay,
                                  .aligned = aligned({t.grad.data, t.master.data, t.m.data, t.v.data, t.copy.data, t.rest.data}) &&
                                             t.apart * std::int64_t(size_of(t.grad.dtype)) % 16 == 0,
                                  .narrow = t.grad.dtype != DType::f32};
      },
      [&] {
        if (step.table.pieces > 0) launch(stream, adamw_step_narrow<T, in_parts, codes>, {grid_of(step.table.pieces), threads}, step);
      });
}

}  // namespace

// Whole moments in launches of their own, and 16 bits, and 8, and weights whose 8-bit copies are written too.
void advance_cuda(std::span<const Update> all, const Tensor& numbers, Context& ctx) {
  const auto stream = cuda_stream(ctx.stream);
  const bool in_parts = !all.empty() && all[0].parts > 1;
  const auto with = [&](DType moments) {
    std::vector<Update> some;
    std::copy_if(all.begin(), all.end(), std::back_inserter(some),
                 [&](const Update& t) { return t.m.dtype == moments && !writes_copies(t, ctx.device); });
    return some;
  };
  advance_tiles(all, numbers, ctx);
  const auto whole = with(DType::f32), half = with(DType::bf16), codes = with(DType::u8);
  with_float(type_of(all), [&]<class T>() {
    in_parts ? start_step<T, true>(whole, numbers, stream) : start_step<T, false>(whole, numbers, stream);
    in_parts ? start_narrow<T, true, false>(half, numbers, stream) : start_narrow<T, false, false>(half, numbers, stream);
    in_parts ? start_narrow<T, true, true>(codes, numbers, stream) : start_narrow<T, false, true>(codes, numbers, stream);
  });
}

}  // namespace headroom::adamw
