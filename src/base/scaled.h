// Scaled — stored numbers and the scales they are read with: value = stored × scale. How many numbers share a scale is the ScaleKind.
//
// A matrix of small numbers is stored [lines, k], with k, the dimension that a product sums over, fastest: Hopper's fp8 units require that.
// So a matrix that is multiplied from both sides is stored twice, once transposed. Scales are FP32, stored as cuBLASLt and
// TransformerEngine lay them out:
//   one    [1]
//   row    [lines]
//   run    [k / 128, lines rounded up to 4]: one for each 128 consecutive numbers of a line (1×128)
//   block  [lines / 128, k / 128 rounded up to 4]: one for each 128 × 128 numbers
// Divisions round up: the last run or block may be shorter. Places that the rounding up to 4 adds are not read.
#pragma once
#include "base/described.h"
#include "base/divide.h"
#include "base/tensor.h"

namespace headroom {

enum class ScaleKind : std::uint8_t { one, row, run, block };
template <>
inline constexpr auto names_of<ScaleKind> = names<ScaleKind>("tensor", "row", "1x128", "128x128");
constexpr std::string_view name_of(ScaleKind k) { return names_of<ScaleKind>.of(k); }

constexpr std::int64_t scale_block = 128;

constexpr bool along_k(ScaleKind k) { return k == ScaleKind::run || k == ScaleKind::block; }  // scales differ within one sum

struct ScaledFormat {  // how an operand is stored
  DType dtype = DType::f32;
  ScaleKind scale = ScaleKind::one;
  friend bool operator==(const ScaledFormat&, const ScaledFormat&) = default;
};

struct Scaled {
  Tensor values;
  Tensor scale;  // none: 1
  ScaleKind kind = ScaleKind::one;

  Scaled(Tensor stored = {}, Tensor scales = {}, ScaleKind by = ScaleKind::one) : values(stored), scale(scales), kind(by) {}
  explicit operator bool() const { return bool(values); }
  std::size_t bytes() const { return values.bytes() + (scale ? scale.bytes() : 0); }
  float scale_at(std::int64_t line, std::int64_t k) const {
    if (!scale) return 1;
    const float* s = scale.as<float>();
    switch (kind) {
      case ScaleKind::one: return s[0];
      case ScaleKind::row: return s[line];
      case ScaleKind::run: return s[k / scale_block * scale.stride[0] + line];
      case ScaleKind::block: return s[line / scale_block * scale.stride[0] + k / scale_block];
    }
    return 1;
  }
};

inline Shape scale_shape(ScaleKind kind, std::int64_t lines, std::int64_t k) {
  const auto up = [](std::int64_t n) { return ceil_div(n, 4) * 4; };
  switch (kind) {
    case ScaleKind::one: break;
    case ScaleKind::row: return {lines};
    case ScaleKind::run: return {ceil_div(k, scale_block), up(lines)};
    case ScaleKind::block: return {ceil_div(lines, scale_block), up(ceil_div(k, scale_block))};
  }
  return {1};
}

}  // namespace headroom
