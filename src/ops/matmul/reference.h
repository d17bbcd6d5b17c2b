// C in FP64: what every product is compared with. Plain loops over numbers as they are stored times their scales; k in order.
#pragma once
#include <vector>

#include "ops/matmul/matmul.h"

namespace headroom::matmul {

struct Exact {  // A · B without alpha and beta
  std::int64_t m = 0, n = 0;
  std::vector<double> value;  // [m, n]
  std::vector<double> size;   // the same sum of magnitudes: what an error is a share of
};

Exact reference(const Scaled& a, const Scaled& b, Context&);  // rank 2, in memory of the host

}  // namespace headroom::matmul
