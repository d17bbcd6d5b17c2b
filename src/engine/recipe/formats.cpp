#include "engine/recipe/formats.h"

namespace headroom::engine {

Support products_in(const Formats& f, const Device& device) {
  const auto operand = [](ScaledFormat of) {
    constexpr std::int64_t n = scale_block;
    return Scaled{Tensor(nullptr, of.dtype, {n, n}), Tensor(nullptr, DType::f32, scale_shape(of.scale, n, n)), of.scale};
  };
  const auto multiplies = [&](ScaledFormat a, ScaledFormat b, DType into) {
    const Scaled left = operand(a), right = matmul::transposed(operand(b));
    return matmul::supports({.a = left, .b = right, .c = {nullptr, into, left.values.shape}, .sums = f.backward_sums}, device);
  };
  for (const Support& s : {multiplies(f.activation, f.weight, f.stored.dtype), multiplies(f.gradient, f.weight, f.stored.dtype),
                           multiplies(f.gradient_transposed, f.activation, DType::f32)})
    if (!s.ok) return s;
  return {};
}

}  // namespace headroom::engine
