#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/swiglu/swiglu_cpu.cpp"
#include "ops/simd_targets.h"  // before anything of Highway

#include <hwy/foreach_target.h>  // this file again for every instruction set
#include <hwy/highway.h>

#include "base/element.h"
#include "ops/rows-inl.h"
#include "ops/swiglu/impl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::swiglu {
namespace HWY_NAMESPACE {

using headroom::HWY_NAMESPACE::sigmoid;

void forward_row(const Forward& t, std::int64_t row) {
  const auto n = t.act.shape[1];
  with_float(t.act.dtype, [&]<class T>() {
    const T *gate = t.gate_up.as<T>() + row * 2 * n, *up = gate + n;
    T* act = t.act.as<T>() + row * n;
    for (std::int64_t i = 0; i < n; ++i) act[i] = narrow<T>(widen(gate[i]) * sigmoid(widen(gate[i])) * widen(up[i]));
  });
}

void backward_row(const Backward& t, std::int64_t row) {
  const auto n = t.dact.shape[1];
  with_float(t.dact.dtype, [&]<class T>() {
    const T *gate = t.gate_up.as<T>() + row * 2 * n, *up = gate + n, *dact = t.dact.as<T>() + row * n;
    T *dgate = t.dgate_up.as<T>() + row * 2 * n, *dup = dgate + n, *act = static_cast<T*>(element_of(t.act, row * n));
    const auto at = [&](std::int64_t i, float g, float u, float d) {
      const float s = sigmoid(g);
      dup[i] = narrow<T>(d * g * s);
      dgate[i] = narrow<T>(d * u * s * (1 + g * (1 - s)));
      return g * s * u;
    };
    if (t.act) {
#pragma GCC ivdep  // outputs are the inputs or do not overlap them: element i needs element i only
      for (std::int64_t i = 0; i < n; ++i) act[i] = narrow<T>(at(i, widen(gate[i]), widen(up[i]), widen(dact[i])));
    } else {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) at(i, widen(gate[i]), widen(up[i]), widen(dact[i]));
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace headroom::swiglu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::swiglu {

HWY_EXPORT(forward_row);
HWY_EXPORT(backward_row);

void forward_cpu(const Forward& t, Context& ctx) {
  ctx.share(t.act.shape[0], [&](std::int64_t row, int) { HWY_DYNAMIC_DISPATCH(forward_row)(t, row); });
}

void backward_cpu(const Backward& t, Context& ctx) {
  ctx.share(t.dact.shape[0], [&](std::int64_t row, int) { HWY_DYNAMIC_DISPATCH(backward_row)(t, row); });
}

}  // namespace headroom::swiglu
#endif
