#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gradient_sum/gradient_sum_cpu.cpp"
#include "ops/simd_targets.h"  // before anything of Highway

#include <hwy/foreach_target.h>  // this file again for every instruction set
#include <hwy/highway.h>

#include <algorithm>

#include "base/convert.h"
#include "base/divide.h"
#include "ops/gradient_sum/impl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::gradient_sum {
namespace HWY_NAMESPACE {

void add_piece(const Tensor& first, int parts, std::int64_t apart, float* __restrict sum, bool keep, std::int64_t begin, std::int64_t end) {
  with_float(first.dtype, [&]<class G>() {
    const G* g = first.as<G>();
    for (int p = 0; p < parts; ++p, keep = true) {
      const G* __restrict part = g + p * apart;
      if (keep)
        for (auto i = begin; i < end; ++i) sum[i] += widen(part[i]);
      else
        for (auto i = begin; i < end; ++i) sum[i] = widen(part[i]);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace headroom::gradient_sum
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::gradient_sum {

HWY_EXPORT(add_piece);

void add_cpu(const Tensor& first, int parts, std::int64_t apart, const Tensor& sum, Gradient into, Context& ctx) {
  constexpr std::int64_t piece = 65536;  // elements that a thread takes at once
  ctx.share(ceil_div(sum.count(), piece), [&](std::int64_t p, int) {
    HWY_DYNAMIC_DISPATCH(add_piece)
    (first, parts, apart, sum.as<float>(), into == Gradient::accumulate, p * piece, std::min(sum.count(), (p + 1) * piece));
  });
}

}  // namespace headroom::gradient_sum
#endif
