#include "base/divide.h"
#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "gpu/vec.cuh"
#include "ops/activation/impl.h"

namespace headroom::activation {

namespace {

constexpr int threads = 256;

struct Bent {  // the function's value and its slope at one x
  float value, slope;
};

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ Bent bent(Function f, float x) {  // every thread of a launch takes the same branch
  switch (f) {
    case Function::silu: {
      const float s = sigmoid(x);
      return {x * s, s * (1 + x * (1 - s))};
    }
    case Function::gelu: {
      const float below = 0.5f * (1 + erff(x * 0.70710678f));  // the normal distribution's
      return {x * below, below + x * 0.39894228f * expf(-0.5f * x * x)};
    }
    case Function::gelu_tanh: {  // ½(1 + tanh u) is sigmoid(2u)
      constexpr float root = 0.79788456f, cubic = 0.044715f;
      const float s = sigmoid(2 * root * (x + cubic * x * x * x)), turning = s * (1 - s);  // 0 far out, where x² may be infinite
      return {x * s, turning == 0 ? s : s + x * turning * 2 * root * (1 + 3 * cubic * x * x)};
    }
    case Function::relu: break;
  }
  return {x > 0 ? x : 0, x > 0 ? 1.0f : 0.0f};
}

template <class T>
struct Args {
  const T *in, *dact;
  T *out, *again;  // act; or din, and act or null
  int width;
  unsigned pieces;  // blocks of one row
  Function function;
};

// activation_fwd, activation_bwd — element by element, a block takes `threads` pieces of one row.
//   reads  in, dact once     writes  act, or din and, when asked, act     numerics  FP32     limit  bandwidth
template <class T, int vec, bool gate>
__global__ void __launch_bounds__(threads) activation_fwd(const __grid_constant__ Args<T> a) {
  const std::int64_t row = blockIdx.x / a.pieces;
  const int i = (int(blockIdx.x % a.pieces) * threads + int(threadIdx.x)) * vec;
  if (i >= a.width) return;
  const T* in = a.in + row * (gate ? 2 : 1) * a.width + i;
  Pack<T, vec> x = load<vec>(in), up;
  if constexpr (gate) up = load<vec>(in + a.width);
#pragma unroll
  for (int e = 0; e < vec; ++e) {
    const float value = bent(a.function, widened(x.at[e])).value;
    x.at[e] = rounded<T>(gate ? value * widened(up.at[e]) : value);
  }
  store(a.out + row * a.width + i, x);
}

template <class T, int vec, bool gate>
__global__ void __launch_bounds__(threads) activation_bwd(const __grid_constant__ Args<T> a) {
  const std::int64_t row = blockIdx.x / a.pieces;
  const int i = (int(blockIdx.x % a.pieces) * threads + int(threadIdx.x)) * vec;
  if (i >= a.width) return;
  const std::int64_t at = row * (gate ? 2 : 1) * a.width + i;
  Pack<T, vec> x = load<vec>(a.in + at), d = load<vec>(a.dact + row * a.width + i), up;
  if constexpr (gate) up = load<vec>(a.in + at + a.width);
#pragma unroll
  for (int e = 0; e < vec; ++e) {
    const Bent b = bent(a.function, widened(x.at[e]));
    const float g = widened(d.at[e]), u = gate ? widened(up.at[e]) : 1.0f;
    if constexpr (gate) up.at[e] = rounded<T>(g * b.value);
    x.at[e] = rounded<T>(g * u * b.slope);
    d.at[e] = rounded<T>(gate ? b.value * u : b.value);
  }
  if (a.again) store(a.again + row * a.width + i, d);
  if constexpr (gate) store(a.out + at + a.width, up);
  store(a.out + at, x);  // may be in: a thread has read what it overwrites, and no other thread reads it
}

template <class F>
void start(const Tensor& in, const Tensor& half, const Tensor& out, const Tensor& dact, const Tensor& again, Function function, F&& f) {
  const auto rows = half.shape[0], width = half.shape[1];
  if (half.count() == 0) return;
  with_float(half.dtype, [&]<class T>() {
    const int vec = pieces_of<T>(width, in.as<char>(), out.as<char>(), dact.as<char>(), again.as<char>());
    const std::int64_t pieces = ceil_div(width, std::int64_t(vec) * threads);
    const Args<T> args{.in = in.as<T>(),
                       .dact = dact.as<T>(),
                       .out = out.as<T>(),
                       .again = again.as<T>(),
                       .width = int(width),
                       .pieces = unsigned(pieces),
                       .function = function};
    const auto with_gate = [&]<bool gate>() {
      if (vec > 1)
        f.template operator()<T, 16 / sizeof(T), gate>(grid_of(rows * pieces), args);
      else
        f.template operator()<T, 1, gate>(grid_of(rows * pieces), args);
    };
    gated(in, half) ? with_gate.template operator()<true>() : with_gate.template operator()<false>();
  });
}

}  // namespace

void forward_cuda(const Forward& t, Context& ctx) {
  start(t.in, t.act, t.act, {}, {}, t.function, [&]<class T, int vec, bool gate>(dim3 grid, const Args<T>& args) {
    launch(cuda_stream(ctx.stream), activation_fwd<T, vec, gate>, {grid, threads}, args);
  });
}

void backward_cuda(const Backward& t, Context& ctx) {
  start(t.in, t.dact, t.din, t.dact, t.act, t.function, [&]<class T, int vec, bool gate>(dim3 grid, const Args<T>& args) {
    launch(cuda_stream(ctx.stream), activation_bwd<T, vec, gate>, {grid, threads}, args);
  });
}

}  // namespace headroom::activation
