// Matrix products by cuBLASLt. Row-major, any leading dimensions, a batch at one stride; asks for no memory and waits for nothing.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace headroom::blas {

constexpr std::size_t workspace_bytes = 32u << 20;  // what cuBLASLt wants on Hopper; the caller lends it

struct Matrix {
  void* data;
  DType dtype;
  std::int64_t row;         // elements from one row to the next
  std::int64_t batch;       // … from one matrix to the next
  bool transposed = false;  // stored with rows and columns swapped
};

struct Product {  // C[m, n] = alpha · A[m, k] · B[k, n] + beta · (add or C), `count` times
  Matrix a, b, c;
  std::int64_t m, n, k, count;
  float alpha = 1, beta = 0;
  Math math = Math::exact;
  const void* add = nullptr;  // what beta multiplies, laid out as c; nullptr: c itself
};

void multiply(const Product&, void* workspace, void* stream);

// While one of these lives, multiply() measures the plans that cuBLASLt offers for a product that was never measured on this card, on
// the operands at hand and waiting for each (so C is written many times over), and takes the fastest from then on. At the end they are
// kept in the user's cache folder; where that cannot be, nothing is measured, so that two runs cannot take different plans and differ
// in their bits. Without a measurement the first plan that cuBLASLt offers is taken. Every plan gives the same bits every time.
class Measuring {
 public:
  Measuring();
  ~Measuring();
  Measuring(const Measuring&) = delete;
  Measuring& operator=(const Measuring&) = delete;
};

}  // namespace headroom::blas
