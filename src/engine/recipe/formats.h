// Formats — which format each role of a step takes. One precision is asked for; from it follow the storage type of everything that stays
// as it is, and how the operands of the blocks' products are stored. Engine, forecasts and studies read it only from here.
#pragma once
#include "base/scaled.h"
#include "ops/matmul/matmul.h"

namespace headroom::engine {

enum class Scales : std::uint8_t {  // fp8's
  tensor,                           // one for each tensor
  row,                              // one for each row, whichever way a tensor is read
  block                             // 1×128 of activations and gradients, 128×128 of weights
};

inline constexpr const char* about_scales = "fp8: what shares a scale: a tensor, a row, or a block (1x128; of weights 128x128)";

constexpr Scales usual_scales = Scales::block;  // docs/decisions/fp8.md

struct Formats {
  Precision stored;  // activations, the residual stream, their gradients, copies of weights; attention, embedding and head compute in it
  ScaledFormat activation, weight, gradient;  // operands of the products of the blocks' weights
  ScaledFormat gradient_transposed;           // the gradient's copy that dW reads
  matmul::Sums forward_sums = matmul::Sums::whole, backward_sums = matmul::Sums::whole;

  bool quantised() const { return size_of(weight.dtype) == 1; }
};

// fp8: E4M3 where scales are fine, E5M2 for gradients that share one scale a tensor; sums in two levels, but for forward where scales do
// not change along a sum (docs/decisions/fp8.md).
constexpr Formats formats_of(Precision p, Scales scales) {
  if (p.dtype != DType::e4m3) {
    const ScaledFormat same{p.dtype};
    return {p, same, same, same, same};
  }
  const bool blocks = scales == Scales::block;
  const DType of_gradient = scales == Scales::tensor ? DType::e5m2 : DType::e4m3;
  const ScaleKind line = blocks ? ScaleKind::run : scales == Scales::row ? ScaleKind::row : ScaleKind::one;
  return {.stored = {DType::bf16},
          .activation = {DType::e4m3, line},
          .weight = {DType::e4m3, blocks ? ScaleKind::block : line},
          .gradient = {of_gradient, line},
          .gradient_transposed = {of_gradient, blocks ? ScaleKind::block : line},
          .forward_sums = blocks ? matmul::Sums::two_level : matmul::Sums::whole,
          .backward_sums = matmul::Sums::two_level};
}

// Whether a device multiplies what the blocks' products multiply in these formats, forward, dX and dW; if not, why not.
Support products_in(const Formats&, const Device&);

}  // namespace headroom::engine

template <>
inline constexpr auto headroom::names_of<headroom::engine::Scales> = headroom::names<headroom::engine::Scales>("tensor", "row", "block");
