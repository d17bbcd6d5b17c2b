#include <algorithm>

#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "gpu/reduce.cuh"
#include "gpu/vec.cuh"
#include "ops/adamw/impl.h"
#include "ops/adamw/prepare.h"
#include "ops/adamw/step.cuh"
#include "ops/copy/split.h"

namespace headroom::adamw {

namespace {

constexpr int threads = 256, vec = 4;

// The tensors of a model travel with the launch: a table of as many as kernel arguments have room for, each cut into pieces, which are
// numbered through.
template <class Item, int piece_, int most_>
struct Table {
  static constexpr int piece = piece_, most = most_;
  int count = 0;
  unsigned pieces = 0;
  Item item[most];

  bool add(Item x) {  // false: full
    if (count == most) return false;
    x.first = pieces;
    pieces += unsigned((x.count + piece - 1) / piece);
    item[count++] = x;
    return true;
  }
  __device__ const Item& of(unsigned p) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (item[middle].first <= p ? low : high) = middle;
    }
    return item[low];
  }
};

bool aligned(std::initializer_list<const void*> all) {
  return std::all_of(all.begin(), all.end(), [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; });
}

struct Gradient {
  const void* at;
  std::int64_t count;
  unsigned first;
  bool aligned, narrow;  // narrow: of the launch's type T, else FP32
};
struct NormArgs {
  double* sums;
  Table<Gradient, 16384, 1024> table;
  bool add;
};

template <class G>
__device__ double squares(const G* g, int n, int piece, bool aligned) {
  float part[vec] = {};
  if (aligned && n == piece) {
    constexpr int turns = 8;  // loads under way at once
    for (int i = int(threadIdx.x) * vec; i < piece; i += turns * threads * vec) {
      Pack<G, vec> x[turns];
#pragma unroll
      for (int k = 0; k < turns; ++k) x[k] = load<vec>(g + i + k * threads * vec);
#pragma unroll
      for (int k = 0; k < turns; ++k)
#pragma unroll
        for (int e = 0; e < vec; ++e) part[e] += widened(x[k].at[e]) * widened(x[k].at[e]);
    }
  } else {
    for (int i = int(threadIdx.x); i < n; i += threads) part[0] += widened(g[i]) * widened(g[i]);
  }
  return double((part[0] + part[1]) + (part[2] + part[3]));
}

// adamw_norm — sums[block] = Σ g² over every norm_blocks-th piece: FP32 within a thread's share of a piece, FP64 beyond, fixed order.
//   reads  every gradient once     limit  bandwidth
template <class T>
__global__ void __launch_bounds__(threads) adamw_norm(const __grid_constant__ NormArgs a) {
  __shared__ double room[32];
  constexpr int piece = decltype(a.table)::piece;
  double sum = 0;
  for (unsigned p = blockIdx.x; p < a.table.pieces; p += norm_blocks) {
    const Gradient& t = a.table.of(p);
    const std::int64_t begin = std::int64_t(p - t.first) * piece;
    const int n = int(min(std::int64_t(piece), t.count - begin));
    sum += t.narrow ? squares(static_cast<const T*>(t.at) + begin, n, piece, t.aligned)
                    : squares(static_cast<const float*>(t.at) + begin, n, piece, t.aligned);
  }
  sum = block_sum(sum, room);
  if (threadIdx.x == 0) a.sums[blockIdx.x] = a.add ? a.sums[blockIdx.x] + sum : sum;
}

struct PrepareArgs {
  const double* sums;
  double* state;
  Numbers* numbers;
  Hyper hyper;
};

// adamw_prepare — one block: the norm, clipping, loss scale, corrections.
__global__ void __launch_bounds__(norm_blocks) adamw_prepare(const __grid_constant__ PrepareArgs a) {
  __shared__ double room[32];
  const double sum = a.sums ? block_sum(a.sums[threadIdx.x], room) : 0;
  if (threadIdx.x == 0) *a.numbers = prepare(a.state, sum, a.hyper);
}

template <class T>
struct Parameter {
  const void* grad;  // FP32, or narrow: T
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
  Table<Parameter<T>, 4096, 480> table;
};

// The weight in two halves: a bf16 copy and the rest of its FP32 bits.
template <class G>
__device__ void step_halves(const Numbers& k, float keep, const Parameter<bf16>& t, std::int64_t begin, int n, int whole) {
  const G* grad = static_cast<const G*>(t.grad) + begin;
  float *first = t.m + begin, *second = t.v + begin;
  bf16* copy = t.copy + begin;
  std::uint16_t* rest = t.rest + begin;
  const auto one = [&](float g, bf16& upper, std::uint16_t& lower, float& m, float& v) {
    float w = copy::join({upper, lower});
    advance(k, keep, g, w, m, v);
    const copy::Halves halves = copy::split(w);
    upper = halves.upper, lower = halves.rest;
  };
#pragma unroll 2
  for (int i = int(threadIdx.x) * vec; i < whole; i += threads * vec) {
    const auto g = load<vec>(grad + i);
    auto m = load<vec>(first + i), v = load<vec>(second + i);
    auto upper = load<vec>(copy + i);
    auto lower = load<vec>(rest + i);
#pragma unroll
    for (int e = 0; e < vec; ++e) one(widened(g.at[e]), upper.at[e], lower.at[e], m.at[e], v.at[e]);
    store(first + i, m), store(second + i, v), store(copy + i, upper), store(rest + i, lower);
  }
  for (int i = whole + int(threadIdx.x); i < n; i += threads) one(widened(grad[i]), copy[i], rest[i], first[i], second[i]);
}

template <class T, class G>
__device__ void step_piece(const Numbers& k, const Parameter<T>& t, std::int64_t begin, int n) {
  const int whole = t.aligned ? n / vec * vec : 0;
  const float keep = t.decay ? k.keep : 1.0f;
  const G* grad = static_cast<const G*>(t.grad) + begin;
  float *master = t.master ? t.master + begin : nullptr, *first = t.m + begin, *second = t.v + begin;
  T* copy = t.copy ? t.copy + begin : nullptr;
  if constexpr (std::is_same_v<T, bf16>)
    if (t.rest) return step_halves<G>(k, keep, t, begin, n, whole);
#pragma unroll 2
  for (int i = int(threadIdx.x) * vec; i < whole; i += threads * vec) {
    const auto g = load<vec>(grad + i);
    auto w = load<vec>(master + i), m = load<vec>(first + i), v = load<vec>(second + i);
    Pack<T, vec> narrow;
#pragma unroll
    for (int e = 0; e < vec; ++e) {
      advance(k, keep, widened(g.at[e]), w.at[e], m.at[e], v.at[e]);
      narrow.at[e] = rounded<T>(w.at[e]);
    }
    store(master + i, w), store(first + i, m), store(second + i, v);
    if (copy) store(copy + i, narrow);
  }
  for (int i = whole + int(threadIdx.x); i < n; i += threads) {
    advance(k, keep, widened(grad[i]), master[i], first[i], second[i]);
    if (copy) copy[i] = rounded<T>(master[i]);
  }
}

// adamw_step — one block per piece of 4096 elements of one parameter.
//   reads  gradient, weight, moments     writes  weight, moments, copy
//   limit  bandwidth: 28 bytes an element, 30 with a 16-bit copy, 28 in halves; 2 fewer with a 16-bit gradient
template <class T>
__global__ void __launch_bounds__(threads) adamw_step(const __grid_constant__ StepArgs<T> a) {
  const Numbers k = *a.numbers;
  if (k.go == 0) return;
  const Parameter<T>& t = a.table.of(blockIdx.x);
  constexpr int piece = decltype(a.table)::piece;
  const std::int64_t begin = std::int64_t(blockIdx.x - t.first) * piece;
  const int n = int(min(std::int64_t(piece), t.count - begin));
  t.narrow ? step_piece<T, T>(k, t, begin, n) : step_piece<T, float>(k, t, begin, n);
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
  launch(static_cast<cudaStream_t>(ctx.stream), adamw_field, {1, 1}, {state.as<double>(), value, int(field), clear});
}

// Launches of full tables, most often one: tensors(add) calls add for each, start(table) puts a table on the stream.
template <class Table, class Item, class Start>
void in_tables(std::span<const Update> all, Table& table, Item&& item, Start&& start) {
  for (const Update& t : all) {
    if (t.grad.count() == 0) continue;
    if (table.add(item(t))) continue;
    start(), table.count = 0, table.pieces = 0;
    table.add(item(t));
  }
  start();
}

// Of copies and narrow gradients: one for all parameters.
DType type_of(std::span<const Update> all) {
  const auto copied = std::find_if(all.begin(), all.end(), [](const Update& t) { return bool(t.copy); });
  return copied == all.end() ? DType::f32 : copied->copy.dtype;
}

}  // namespace

void start_cuda(const Tensor& state, double scale, Context& ctx) { set(state, loss_scale, scale, true, ctx); }
void set_rate_cuda(const Tensor& state, double lr, Context& ctx) { set(state, rate, lr, false, ctx); }

void prepare_cuda(std::span<const Update> all, const Scratch& scratch, const Tensor& state, const Hyper& h, Context& ctx) {
  const auto stream = static_cast<cudaStream_t>(ctx.stream);
  if (scratch.sums)
    with_float(type_of(all), [&]<class T>() {
      NormArgs norm{scratch.sums.as<double>(), {}, false};
      in_tables(
          all, norm.table,
          [](const Update& t) {
            return Gradient{t.grad.data, t.grad.count(), 0, aligned({t.grad.data}), t.grad.dtype != DType::f32};
          },
          [&] {
            launch(stream, adamw_norm<T>, {unsigned(norm_blocks), threads}, norm);
            norm.add = true;
          });
    });
  launch(stream, adamw_prepare, {1, unsigned(norm_blocks)},
         {scratch.sums.as<double>(), state.as<double>(), scratch.numbers.as<Numbers>(), h});
}

void advance_cuda(std::span<const Update> all, const Tensor& numbers, Context& ctx) {
  const auto stream = static_cast<cudaStream_t>(ctx.stream);
  with_float(type_of(all), [&]<class T>() {
    StepArgs<T> step{numbers.as<Numbers>(), {}};
    in_tables(
        all, step.table,
        [](const Update& t) {
          return Parameter<T>{t.grad.data,
                              t.master.as<float>(),
                              t.m.as<float>(),
                              t.v.as<float>(),
                              t.copy.as<T>(),
                              t.rest.as<std::uint16_t>(),
                              t.grad.count(),
                              0,
                              t.decay,
                              aligned({t.grad.data, t.master.data, t.m.data, t.v.data, t.copy.data, t.rest.data}),
                              t.grad.dtype != DType::f32};
        },
        [&] {
          if (step.table.pieces > 0) launch(stream, adamw_step<T>, {grid_of(step.table.pieces), threads}, step);
        });
  });
}

}  // namespace headroom::adamw
