#include <cmath>

#include "ops/attention/attention.h"

namespace headroom::attention {

float Problem::scale_or_default() const { return scale.value_or(1.0f / std::sqrt(float(head_dim))); }

Operands Problem::operands() const {
  const DType t = precision.dtype;
  if (size_of(t) > 1) return {{t}, {t}, {t}, {t}};
  return {{t, ScaledBy::head}, {t, ScaledBy::head}, {t, ScaledBy::head}, {DType::bf16}};
}

}  // namespace headroom::attention
