// Which CUDA devices this machine has. Without libheadroom_cuda.so, or without a driver, there are none.
#pragma once
#include "base/device.h"

namespace headroom {

int cuda_device_count();
bool cuda_by_default();  // whether work that names no device runs on a GPU; an Error (unsupported) where GPU kernels are there and cannot be used
Device cuda_device(int index);                   // an Error (unsupported) that says what there is; memory_bytes is all it has
std::uint64_t free_memory_bytes(const Device&);  // free now on a CUDA device that is present; makes its context

}  // namespace headroom
