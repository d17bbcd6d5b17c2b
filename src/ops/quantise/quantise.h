// x [rows, columns] in 8 bits, as it is [rows, columns] and transposed [columns, rows], each with its scales (base/scaled.h), read once.
// A product adds over the last dimension of what it is given, so each of the two serves one side.
//
// x is FP32, bf16 or fp16, contiguous; the copies e4m3 or e5m2, contiguous, in formats of their own; either may be left out. Scales are made
// of the values at hand, never of earlier ones. What becomes of zeros, infinities, NaN and overflow: encode.h. The bits depend on x alone.
// counts, if given: int64 [count_size], to which each copy's numbers are added.
#pragma once
#include "base/scaled.h"
#include "ops/op.h"

namespace headroom::quantise {

enum Count : std::uint8_t {
  numbers,
  clipped,  // too large for the format, infinities too: now its largest number. With scales made of finite values, only infinities are
  flushed,  // not zero before, and zero now
  nan,
  count_size
};

enum class Of : std::uint8_t {  // the source that is quantised
  stored,                       // x
  swiglu,                       // SwiGLU's product of x = gate and up beside each other, rounded to x's type as swiglu::forward stores it
  swiglu_gradient,              // swiglu::backward's result for this x and dact
  rmsnorm                       // rmsnorm::forward's result for this x, weight and rstd
};

struct Request {
  Tensor x;
  Scaled as_is = {}, transposed = {};  // written; none: left out
  Tensor counts = {};
  Of of = Of::stored;
  Tensor dact = {};               // for swiglu_gradient
  Tensor weight = {}, rstd = {};  // for rmsnorm: FP32 [columns], [rows]

  std::int64_t rows() const { return x.shape[0]; }
  std::int64_t columns() const { return of == Of::swiglu ? x.shape[1] / 2 : x.shape[1]; }
};

// Whether the device makes and quantises it in one pass, with the bits that the two ops would give. What is made is never stored.
Support supports(Of, std::int64_t rows, std::int64_t columns, DType, const Device&);

// An operand of that format in the arena: its numbers, and its scales.
Scaled make(Name, ScaledFormat, std::int64_t lines, std::int64_t k, Context&);
std::size_t bytes_of(ScaledFormat, std::int64_t lines, std::int64_t k);  // bytes that it takes there

// Scratch, where scales reach beyond 128 x 128 numbers: on a CPU FP32 maxima of each 128 rows, of columns where the transposed copy has a scale a
// row; on a GPU a 32-bit maximum of the tensor, of each row and of each column, whichever a copy needs.
void quantise(const Request&, Context&, Name name = "quantise");

// The way back, of a copy as it is: to[i, j] = stored × scale, in FP32 and rounded once to fp32, bf16 or fp16, contiguous. No scratch.
void dequantise(const Scaled& from, const Tensor& to, Context&, Name name = "dequantise");

}  // namespace headroom::quantise
