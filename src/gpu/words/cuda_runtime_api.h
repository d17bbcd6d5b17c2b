// The few words of CUDA's headers that the host side of kernels says, for a build without CUDA: plans, tiles and scratch are counted there
// as with CUDA. Only such a build has this folder on its path. No call gets here: without CUDA there is no stream to launch into.
#pragma once
#include <cstddef>

#define __host__
#define __device__

using cudaStream_t = struct CUstream_st*;
enum cudaError_t { cudaSuccess, cudaErrorNotSupported = 801 };

struct alignas(16) float4 {
  float x, y, z, w;
};

inline cudaError_t cudaMemsetAsync(void*, int, std::size_t, cudaStream_t) { return cudaErrorNotSupported; }
inline cudaError_t cudaMemset2DAsync(void*, std::size_t, int, std::size_t, std::size_t, cudaStream_t) { return cudaErrorNotSupported; }
inline cudaError_t cudaStreamGetPriority(cudaStream_t, int*) { return cudaErrorNotSupported; }
