// Random values written where a tensor lies on a CUDA device. Value i is scale · random.normal(i), rounded to the tensor's type, as the
// host would write it, to the bit.
#pragma once
#include "base/random.h"
#include "base/tensor.h"
#include "gpu/stream.h"

namespace headroom {

void fill_normal(const Tensor&, Random, const Stream&, float scale = 1);  // contiguous; fp32, bf16 or fp16

}  // namespace headroom
