// Random values written where a tensor lies on a CUDA device. Value i is scale · random.normal(i), rounded to the tensor's type, as the
// host would write it; the two logarithms and cosines may differ in FP64's last bit, so one value in very many in its own last bit.
#pragma once
#include "base/random.h"
#include "base/tensor.h"
#include "gpu/stream.h"

namespace headroom {

void fill_normal(const Tensor&, Random, const Stream&, float scale = 1);  // contiguous; fp32, bf16 or fp16

}  // namespace headroom
