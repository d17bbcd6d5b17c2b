// An FP32 value in two halves of 16 bits: the nearest bf16 (ties away from zero) and the rest. Together they restore the value exactly.
// With weights stored this way, the bf16 copy that products multiply takes no extra memory.
#pragma once
#include "base/convert.h"
#include "base/tensor.h"
#include "ops/op.h"

namespace headroom::copy {

struct Halves {
  bf16 upper;
  std::uint16_t rest;
};

HEADROOM_CONVERT Halves split(float x) {
  const std::uint32_t bits = bits_of(x);
  return {{std::uint16_t((bits >> 16) + (bits >> 15 & 1))}, std::uint16_t(bits)};
}
HEADROOM_CONVERT float join(Halves h) { return float_of(std::uint32_t(std::uint16_t(h.upper.bits - (h.rest >> 15))) << 16 | h.rest); }

// Contiguous tensors of one shape: FP32 from; bf16 upper, uint16 rest.
void split(const Tensor& from, const Tensor& upper, const Tensor& rest, Context&);

}  // namespace headroom::copy
