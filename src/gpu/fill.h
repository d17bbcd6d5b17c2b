// Random values written into a tensor on a CUDA device. Value i is scale · random.normal(i), rounded to the tensor's type: the bits are
// the host's.
#pragma once
#include "base/convert.h"
#include "base/random.h"
#include "base/tensor.h"
#include "gpu/stream.h"

namespace headroom {

template <class F>
decltype(auto) with_filled(DType t, F&& f) {  // as with_float, for types that can be filled
  return t == DType::e4m3 ? f.template operator()<e4m3>() : with_float(t, f);
}

void fill_normal(const Tensor&, Random, const Stream&, float scale = 1);  // contiguous; fp32, bf16, fp16 or e4m3

}  // namespace headroom
