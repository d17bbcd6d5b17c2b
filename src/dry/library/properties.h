// cudaDeviceProp as CUDA 12 and 13 lay it out, and the attributes that are asked one by one.
#pragma once
#include <cstddef>

namespace headroom::dry {

enum class PropertiesOf { cuda_12, cuda_13 };

// Fills the caller's struct, whose layout is that of a version of CUDA. Returns its size.
std::size_t fill_properties(void* out, PropertiesOf, int device);

int attribute_of(int attribute, int device);  // cudaDeviceAttr and CUdevice_attribute have the same numbers

}  // namespace headroom::dry
