#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/activation/activation_cpu.cpp"
#include "ops/simd_targets.h"  // before anything of Highway

#include <hwy/foreach_target.h>  // this file again for every instruction set
#include <hwy/highway.h>

#include "ops/activation/impl.h"
#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::activation {
namespace HWY_NAMESPACE {

using headroom::HWY_NAMESPACE::exp_of;
using headroom::HWY_NAMESPACE::sigmoid;

struct Bent {  // the function's value and slope at one x
  float value, slope;
};

struct Silu {
  static Bent at(float x) {
    const float s = sigmoid(x);
    return {x * s, s * (1 + x * (1 - s))};
  }
};
struct Gelu {
  static Bent at(float x) {
    const float below = 0.5f * (1 + std::erf(x * 0.70710678f));  // the normal distribution below x
    return {x * below, below + x * 0.39894228f * exp_of(-0.5f * x * x)};
  }
};
struct GeluTanh {  // ½(1 + tanh u) is sigmoid(2u)
  static Bent at(float x) {
    constexpr float root = 0.79788456f, cubic = 0.044715f;
    const float s = sigmoid(2 * root * (x + cubic * x * x * x));
    const float turning = s * (1 - s);  // 0 far out, where x² may be infinite
    return {x * s, turning == 0 ? s : s + x * turning * 2 * root * (1 + 3 * cubic * x * x)};
  }
};
struct Relu {
  static Bent at(float x) { return {x > 0 ? x : 0, x > 0 ? 1.0f : 0.0f}; }
};

template <class Body>
void with_function(Function f, Body&& body) {
  switch (f) {
    case Function::silu: return body(Silu());
    case Function::gelu: return body(Gelu());
    case Function::gelu_tanh: return body(GeluTanh());
    case Function::relu: return body(Relu());
  }
}

void forward_row(const Forward& t, std::int64_t row) {
  const auto n = t.act.shape[1], wide = t.in.shape[1];
  with_float(t.act.dtype, [&]<class T>() {
    const T *x = t.in.as<T>() + row * wide, *up = x + n;
    T* act = t.act.as<T>() + row * n;
    with_function(t.function, [&]<class F>(F) {
      if (wide == n)
        for (std::int64_t i = 0; i < n; ++i) act[i] = narrow<T>(F::at(widen(x[i])).value);
      else
        for (std::int64_t i = 0; i < n; ++i) act[i] = narrow<T>(F::at(widen(x[i])).value * widen(up[i]));
    });
  });
}

// din may be in, act may be dact: element i needs the elements i only, and they are read first.
void backward_row(const Backward& t, std::int64_t row) {
  const auto n = t.dact.shape[1], wide = t.in.shape[1];
  with_float(t.dact.dtype, [&]<class T>() {
    const T *x = t.in.as<T>() + row * wide, *up = x + n, *dact = t.dact.as<T>() + row * n;
    T *dx = t.din.as<T>() + row * wide, *dup = dx + n, *again = t.act ? t.act.as<T>() + row * n : nullptr;
    with_function(t.function, [&]<class F>(F) {
      for (std::int64_t i = 0; i < n; ++i) {
        const Bent bent = F::at(widen(x[i]));
        const float d = widen(dact[i]), u = wide == n ? 1.0f : widen(up[i]);
        if (wide != n) dup[i] = narrow<T>(d * bent.value);
        dx[i] = narrow<T>(d * u * bent.slope);
        if (again) again[i] = narrow<T>(wide == n ? bent.value : bent.value * u);
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace headroom::activation
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::activation {

HWY_EXPORT(forward_row);
HWY_EXPORT(backward_row);

void forward_cpu(const Forward& t, Context& ctx) {
  ctx.share(t.act.shape[0], [&](std::int64_t row, int) { HWY_DYNAMIC_DISPATCH(forward_row)(t, row); });
}

void backward_cpu(const Backward& t, Context& ctx) {
  ctx.share(t.dact.shape[0], [&](std::int64_t row, int) { HWY_DYNAMIC_DISPATCH(backward_row)(t, row); });
}

}  // namespace headroom::activation
#endif
