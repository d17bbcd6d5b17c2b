// plain — S = Q Kᵀ and P = softmax(S) are whole matrices, and P is kept for backward: the honest baseline.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/convert.h"
#include "ops/attention/impl.h"

namespace headroom::attention {

Support plain_supports(const Problem& p, const Device& device, Pass) {
  if (device.kind != DeviceKind::cpu) return Support::no("needs the CPU");
  if (p.precision.math != Math::exact) return Support::no("tf32 is a GPU's arithmetic");
  if (size_of(p.precision.dtype) < 2) return Support::no("fp8 is not served on the CPU");
  return {};
}

Saved plain_make_saved(const Problem& p, Context& ctx) {
  return {ctx.arena.make("p", p.precision.dtype, {p.batch, p.heads, p.len_q, p.len_k})};
}

}  // namespace headroom::attention
