// Matrix products by cuBLASLt. Row-major, any leading dimensions, a batch at one stride. Allocates nothing and does not wait.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/scaled.h"

namespace headroom::blas {

constexpr std::size_t workspace_bytes = 32u << 20;  // cuBLASLt's recommendation for Hopper; the caller provides it

struct Matrix {
  void* data;
  DType dtype;
  std::int64_t row;             // elements from one row to the next
  std::int64_t batch;           // … from one matrix to the next
  bool transposed = false;      // stored with rows and columns swapped
  const void* scale = nullptr;  // scale of an 8-bit operand, on the card, as base/scaled.h lays it out; nullptr: 1
  ScaleKind kind = ScaleKind::one;
};

struct Gemm {  // C[m, n] = alpha · A[m, k] · B[k, n] + beta · (add or C), `count` times
  Matrix a, b, c;
  std::int64_t m, n, k, count;
  float alpha = 1, beta = 0;
  Math math = Math::exact;
  const void* add = nullptr;  // beta multiplies it, in c's layout; nullptr: c itself
  bool whole_sums = false;    // 8 bits: one sum over the whole of k; else sums over 128 of k, added in FP32
  double flops() const { return 2.0 * double(m) * double(n) * double(k) * double(count); }
};

void multiply(const Gemm&, void* workspace, void* stream);

// While an object of this class exists, multiply() measures cuBLASLt's algorithms for each product that is new on this card, up to a second for a long
// one. It uses the given operands (so C is written many times), waits for each algorithm, and uses the fastest from then on. The destructor stores the
// choices in the user's cache folder. If the folder cannot be written, nothing is measured: otherwise two runs could choose different algorithms and give
// different bits. An unmeasured product uses the first algorithm offered. Each algorithm gives the same bits every time.
class Measuring {
 public:
  Measuring();
  ~Measuring();
  Measuring(const Measuring&) = delete;
  Measuring& operator=(const Measuring&) = delete;
};

}  // namespace headroom::blas
