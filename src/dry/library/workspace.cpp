// Functions that say how much workspace another one needs, where that is not known here: they answer 0, and the record names them. A row says
// the function, the type of its answer and the number of the parameter that the answer goes to.
#include <cstddef>
#include <cstdint>

#include "dry/library/public.h"
#include "dry/library/world.h"

using namespace headroom::dry;

namespace {

using Word = std::uintptr_t;  // an integer or a pointer; none of these functions takes a floating-point number

template <class Size, class... Index>
int answer_zero(const char* name, const Word* parameters, Index... index) {
  ((*reinterpret_cast<Size*>(parameters[index]) = 0), ...);
  note(Said::no_workspace, name);
  say("workspace unknown:", name);
  return ok;
}

}  // namespace

#define WORKSPACE(name, Size, ...)                                                                                                    \
  extern "C" int name(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j, Word k, Word l, Word m, Word n, \
                      Word o, Word p, Word q, Word r, Word s, Word t) {                                                               \
    const Word parameters[] = {a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t};                                           \
    return answer_zero<Size>(#name, parameters, __VA_ARGS__);                                                                         \
  }
#define FOUR(before, after, Size, index)   \
  WORKSPACE(before##S##after, Size, index) \
  WORKSPACE(before##D##after, Size, index) \
  WORKSPACE(before##C##after, Size, index) \
  WORKSPACE(before##Z##after, Size, index)
#define TWO(before, one, other, after, Size, index) \
  WORKSPACE(before##one##after, Size, index)        \
  WORKSPACE(before##other##after, Size, index)

FOUR(cusolverDn, geqrf_bufferSize, int, 5)
FOUR(cusolverDn, potrf_bufferSize, int, 5)
FOUR(cusolverDn, getrf_bufferSize, int, 5)
FOUR(cusolverDn, sytrf_bufferSize, int, 4)
FOUR(cusolverDn, gesvd_bufferSize, int, 3)
FOUR(cusolverDn, gesvdj_bufferSize, int, 12)
FOUR(cusolverDn, gesvdjBatched_bufferSize, int, 11)
FOUR(cusolverDn, gesvdaStridedBatched_bufferSize, int, 16)
TWO(cusolverDn, S, D, orgqr_bufferSize, int, 7)
TWO(cusolverDn, C, Z, ungqr_bufferSize, int, 7)
TWO(cusolverDn, S, D, ormqr_bufferSize, int, 11)
TWO(cusolverDn, C, Z, unmqr_bufferSize, int, 11)
TWO(cusolverDn, S, D, syevd_bufferSize, int, 7)
TWO(cusolverDn, C, Z, heevd_bufferSize, int, 7)
TWO(cusolverDn, S, D, syevj_bufferSize, int, 7)
TWO(cusolverDn, C, Z, heevj_bufferSize, int, 7)
TWO(cusolverDn, S, D, syevjBatched_bufferSize, int, 7)
TWO(cusolverDn, C, Z, heevjBatched_bufferSize, int, 7)
WORKSPACE(cusolverDnXgeqrf_bufferSize, std::size_t, 10, 11)
WORKSPACE(cusolverDnXpotrf_bufferSize, std::size_t, 8, 9)
WORKSPACE(cusolverDnXsyevd_bufferSize, std::size_t, 11, 12)
WORKSPACE(cusolverDnXsyevBatched_bufferSize, std::size_t, 11, 12)
WORKSPACE(cusolverDnXgeev_bufferSize, std::size_t, 17, 18)
WORKSPACE(cusolverDnXsytrs_bufferSize, std::size_t, 11, 12)

WORKSPACE(cusparseSpMM_bufferSize, std::size_t, 10)
WORKSPACE(cusparseSDDMM_bufferSize, std::size_t, 10)
WORKSPACE(cusparseSpSM_bufferSize, std::size_t, 10)
WORKSPACE(cusparseSpMV_bufferSize, std::size_t, 9)
WORKSPACE(cusparseSpSV_bufferSize, std::size_t, 9)
WORKSPACE(cusparseSpMatGetSize, std::int64_t, 1, 2, 3)
WORKSPACE(cusparseXcoosort_bufferSizeExt, std::size_t, 6)
WORKSPACE(cusparseXcsrsort_bufferSizeExt, std::size_t, 6)
FOUR(cusparse, bsrsv2_bufferSize, int, 11)
FOUR(cusparse, bsrsm2_bufferSize, int, 13)
FOUR(cusparse, csrgeam2_bufferSizeExt, std::size_t, 19)

WORKSPACE(cufftXtMakePlanMany, std::size_t, 12)

WORKSPACE(cudnnGetCTCLossWorkspaceSize, std::size_t, 8)
WORKSPACE(cudnnGetCTCLossWorkspaceSize_v8, std::size_t, 5)
WORKSPACE(cudnnGetConvolutionForwardWorkspaceSize, std::size_t, 6)
WORKSPACE(cudnnGetConvolutionBackwardDataWorkspaceSize, std::size_t, 6)
WORKSPACE(cudnnGetConvolutionBackwardFilterWorkspaceSize, std::size_t, 6)
