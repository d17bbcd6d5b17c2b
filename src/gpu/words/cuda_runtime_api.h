// The few words of CUDA's headers that the program says: attention's host sides plan, choose tiles and count scratch for kernels whose arguments
// name these types. Only those sources have this folder on their path. The sizes are CUDA's: the library compares them when it is opened.
#pragma once

#define __host__
#define __device__

using cudaStream_t = struct CUstream_st*;
enum cudaError_t { cudaSuccess };

struct alignas(16) float4 {
  float x, y, z, w;
};
