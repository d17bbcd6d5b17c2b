// tiles_fp8.h — the tuned numbers of Hopper's 8-bit forward, beside tiles.h. T is O's type. A step of a product adds 32 keys, so `keys` is a multiple of that.
#pragma once
#include "ops/attention/sm90/tiles.h"

namespace headroom::attention {

template <class Type, class Stored>
struct Fp8Forward64 : Forward64<Type> {
  using Operand = Stored;
  static constexpr bool turns = true;  // groups start their products one after another
};
template <class Type, class Stored>
struct Fp8Forward128
    : Fp8Forward64<Type, Stored> {  // no shape of two groups with 96 to 224 keys was faster; three groups with 64 are 9 % slower
  static constexpr int dim = 128, keys = 96, stages = 4;
  static constexpr bool maxima_first = false;  // 2–3 % faster
};
template <class Type, class Stored>
struct Fp8Forward256 : Fp8Forward64<Type, Stored> {
  static constexpr int dim = 256, consumers = 2, keys = 96, stages = 3;
  static constexpr int producer_registers = 40, consumer_registers = 232;
  static constexpr bool stages_o = false, maxima_first = false;
};

// body(tiles) with those that serve a head dim: Q's and K's or V's, whichever is wider.
template <class Type, class Stored, class Body>
decltype(auto) with_fp8_tiles(std::int64_t widest, Body&& body) {
  if (widest > 128) return body(Fp8Forward256<Type, Stored>{});
  if (widest > 64) return body(Fp8Forward128<Type, Stored>{});
  return body(Fp8Forward64<Type, Stored>{});
}

}  // namespace headroom::attention
