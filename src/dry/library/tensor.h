// cuDNN's description of a tensor (cudnnTensorDescriptor), as its caller filled it.
#pragma once
#include <cstdint>

namespace headroom::dry {

enum DnnType { floats = 0, doubles = 1, halves = 2, bfloat = 9 };  // cudnnDataType_t

struct Tensor {
  static constexpr int most_dims = 8;
  int type = floats, dims = 0;
  int size[most_dims] = {}, stride[most_dims] = {};

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (int i = 0; i < dims; ++i) n *= size[i];
    return n;
  }
  std::int64_t bytes() const { return elements() * (type == doubles ? 8 : type == floats ? 4 : 2); }
};

}  // namespace headroom::dry
