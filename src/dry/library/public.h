// CUDA's public interface, as far as this library answers it: our own declarations of what the programming guides publish, because the
// library is built where there are no CUDA headers. Handles are addresses of our own objects.
#pragma once
#include <cstddef>
#include <cstdint>

namespace headroom::dry {

// cudaError_t and CUresult: where both have a number, it means the same.
enum Status : int {
  ok = 0,
  invalid_value = 1,
  out_of_memory = 2,
  no_device = 100,
  invalid_device = 101,
  file_not_found = 301,
  invalid_handle = 400,
  not_found = 500,
  not_ready = 600,
  not_supported = 801,
};

struct Dim {  // dim3
  unsigned x = 1, y = 1, z = 1;
};

using StreamHandle = void*;  // null, 1 (legacy) and 2 (per thread) are the device's own stream

struct LaunchConfig {  // cudaLaunchConfig_t
  Dim grid, block;
  std::size_t shared_bytes;
  StreamHandle stream;
  void* attributes;
  unsigned attribute_count;
};

struct DriverLaunchConfig {  // CUlaunchConfig
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  StreamHandle stream;
  void* attributes;
  unsigned attribute_count;
};

struct FunctionAttributes {  // cudaFuncAttributes, the part that every version begins with
  std::size_t shared_bytes, const_bytes, local_bytes;
  int max_threads, registers, ptx_version, binary_version, cache_mode_ca, max_dynamic_shared_bytes, preferred_carveout;
};

enum class MemoryType : int { unregistered, host, device, managed };

struct PointerAttributes {  // cudaPointerAttributes
  MemoryType type;
  int device;
  void *device_pointer, *host_pointer;
  long reserved[8];  // from CUDA 13 on; see runtime_memory.cpp
};

}  // namespace headroom::dry
