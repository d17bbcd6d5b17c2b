// What PyTorch's kernels, libraries' handles, streams and graphs take of a card's memory, past the context and PyTorch's own allocator. An H200's, by
// torch 2.11 and CUDA 13.0 (bench/results/h200_pytorch_beside_2026-11-30.txt).
#pragma once
#include <cstdint>

namespace headroom::dry {

enum class Beside : std::uint8_t { kernels, blas_handle, dnn_or_attention, solver, transforms, stream, graph_node };

// So many more of them on a device, from now on; fewer where that is below 0.
void takes_beside(Beside, int device, std::int64_t more = 1);

}  // namespace headroom::dry
