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

}  // namespace headroom::blas
