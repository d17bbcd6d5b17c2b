// cuDNN's description of a tensor (cudnnTensorDescriptor), as its caller filled it.
#pragma once
#include <cstdint>

#include "dry/cuda_types.h"

namespace headroom::dry {

struct Tensor {
  static constexpr int most_dims = 8;
  int type = cudnn_type::single, dims = 0;
  int size[most_dims] = {}, stride[most_dims] = {};

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (int i = 0; i < dims; ++i) n *= size[i];
    return n;
  }
  std::int64_t bytes() const { return elements() * cudnn_type::bytes_of(type); }
};

}  // namespace headroom::dry
