// The implementations behind matmul.cpp, which has checked the arguments. No other file includes this.
#pragma once
#include "ops/matmul/matmul.h"

namespace headroom::matmul {

void multiply_cpu(const Product&, Context&);                            // beta multiplies what c holds
void multiply_cuda(const Product&, const Tensor& workspace, Context&);  // in libheadroom_cuda.so: called through beside::call

}  // namespace headroom::matmul
