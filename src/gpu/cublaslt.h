// cuBLASLt, opened when the first product needs it: the library and the program load on a machine without CUDA's libraries. Looked for
// are, in this order: $HEADROOM_CUBLASLT, a copy that the process has loaded (torch's), NVIDIA's wheels beside ours, the system's; of each
// place first the major version that we were built with, then the other that has the same calls.
#pragma once
#include <cublasLt.h>

namespace headroom::blas {

#define HEADROOM_CUBLASLT_CALLS(call)                                                                                            \
  call(cublasLtCreate) call(cublasLtGetStatusString) call(cublasLtGetVersion) call(cublasLtMatmul) call(cublasLtMatmulAlgoCheck) \
      call(cublasLtMatmulAlgoConfigSetAttribute) call(cublasLtMatmulAlgoGetHeuristic) call(cublasLtMatmulDescCreate)             \
          call(cublasLtMatmulDescDestroy) call(cublasLtMatmulDescSetAttribute) call(cublasLtMatmulPreferenceCreate)              \
              call(cublasLtMatmulPreferenceDestroy) call(cublasLtMatmulPreferenceSetAttribute) call(cublasLtMatrixLayoutCreate)  \
                  call(cublasLtMatrixLayoutDestroy) call(cublasLtMatrixLayoutSetAttribute)

struct CublasLt {  // its calls, by their own names
#define HEADROOM_DECLARE(name) decltype(&::name) name = nullptr;
  HEADROOM_CUBLASLT_CALLS(HEADROOM_DECLARE)
#undef HEADROOM_DECLARE
};

const CublasLt& cublaslt();  // an Error (unsupported) that says where it was looked for

}  // namespace headroom::blas
