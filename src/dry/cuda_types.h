// CUDA's published numbers of types, as its libraries are called with them and a record keeps them.
#pragma once

namespace headroom::dry {

namespace cuda_type {  // cudaDataType
constexpr int single = 0, twice = 1, half = 2, complex_single = 4, complex_twice = 5, brain = 14, e4m3 = 28, e5m2 = 29;

constexpr int bytes_of(int type) {
  switch (type) {
    case twice: return 8;
    case half:
    case brain: return 2;
    case e4m3:
    case e5m2: return 1;
    default: return 4;
  }
}
}  // namespace cuda_type

namespace cublas_compute {  // cublasComputeType_t
constexpr int fp32 = 68, fast_tf32 = 77;
}

namespace cudnn_type {  // cudnnDataType_t
constexpr int single = 0, twice = 1, half = 2, brain = 9;

constexpr int bytes_of(int type) { return type == twice ? 8 : type == half || type == brain ? 2 : 4; }
constexpr int cuda_type_of(int type) {
  return type == half ? cuda_type::half : type == brain ? cuda_type::brain : type == twice ? cuda_type::twice : cuda_type::single;
}
}  // namespace cudnn_type

}  // namespace headroom::dry
