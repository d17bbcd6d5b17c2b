// Algorithms of cuBLASLt's that it can run but does not offer: one that it offers, with other tiles.
#pragma once
#include <vector>

#include "gpu/cublaslt.h"

namespace headroom::blas {

// The caller asks cublasLtMatmulAlgoCheck() which of them can do its product.
std::vector<cublasLtMatmulAlgo_t> variations_of(const cublasLtMatmulAlgo_t&);

}  // namespace headroom::blas
