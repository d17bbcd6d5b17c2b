// Functions that say how much workspace another one needs. Those of cuSOLVER with a rule (solver_workspace.h) answer by it. Of all others it is not
// known here: they answer 0, and the record names them. A row says the function, the type of its answer and the number of the parameter that the
// answer goes to.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dry/library/public.h"
#include "dry/library/world.h"
#include "dry/solver_workspace.h"
#include "dry/transform_workspace.h"

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

constexpr int ruled_cuda = 13;  // the major version whose cuSOLVER the rules are of
constexpr int cuda_r_32f = 0, cuda_r_64f = 1;

bool ruled() { return cuda_version() / 1000 == ruled_cuda; }

// Functions of one type (S, D) count in numbers, those for any type (X) in bytes.
template <class Size>
int answer(const char* name, Word to, std::int64_t amount, std::int64_t unsure_bytes = 0) {
  *reinterpret_cast<Size*>(to) = Size(amount);
  note(Said::by_rule, name, std::uint64_t(unsure_bytes));
  return ok;
}

constexpr std::int64_t aligned = 128;  // what the functions for any type ask for beside their numbers

struct AnyType {  // of a function for any type: where its answers go
  const char* name;
  Word type, on_card, on_host;

  bool known() const { return ruled() && (type == cuda_r_32f || type == cuda_r_64f); }
  bool wide() const { return type == cuda_r_64f; }
  std::int64_t number_bytes() const { return wide() ? 8 : 4; }
  int say(std::int64_t bytes, std::int64_t unsure_bytes = 0) const {
    *reinterpret_cast<std::size_t*>(on_host) = 0;
    return answer<std::size_t>(name, on_card, bytes, unsure_bytes);
  }
  int say_nothing() const {
    const Word both[] = {on_card, on_host};
    return answer_zero<std::size_t>(name, both, 0, 1);
  }
};

int solver(const char* name, Word to, std::int64_t numbers, std::int64_t unsure_bytes = 0) {
  if (ruled()) return answer<int>(name, to, numbers, unsure_bytes);
  return answer_zero<int>(name, &to, 0);
}

}  // namespace

#define RULED(type, wide)                                                                                                              \
  extern "C" int cusolverDn##type##geqrf_bufferSize(Word, int, int n, Word, int, Word to) {                                            \
    return solver("cusolverDn" #type "geqrf_bufferSize", to, qr_workspace(n));                                                         \
  }                                                                                                                                    \
  extern "C" int cusolverDn##type##getrf_bufferSize(Word, int m, int n, Word, int, Word to) {                                          \
    return solver("cusolverDn" #type "getrf_bufferSize", to, lu_workspace(m, n, wide));                                                \
  }                                                                                                                                    \
  extern "C" int cusolverDn##type##potrf_bufferSize(Word, int upper, int n, Word, int, Word to) {                                      \
    return solver("cusolverDn" #type "potrf_bufferSize", to, cholesky_workspace(upper != 0, n, wide));                                 \
  }                                                                                                                                    \
  extern "C" int cusolverDn##type##orgqr_bufferSize(Word, int m, int n, int, Word, int, Word, Word to) {                               \
    return solver("cusolverDn" #type "orgqr_bufferSize", to, q_workspace(m, n), q_unsure(n) * (wide ? 8 : 4));                         \
  }                                                                                                                                    \
  extern "C" int cusolverDn##type##syevd_bufferSize(Word, int, int, int n, Word, int, Word, Word to) {                                 \
    return solver("cusolverDn" #type "syevd_bufferSize", to, eigen_workspace(n), eigen_unsure * (wide ? 8 : 4));                       \
  }                                                                                                                                    \
  extern "C" int cusolverDn##type##syevj_bufferSize(Word, int, int, int n, Word, int, Word, Word to, Word) {                           \
    constexpr const char* name = "cusolverDn" #type "syevj_bufferSize";                                                                \
    return n <= most_by_jacobi ? solver(name, to, jacobi_workspace(n)) : answer_zero<int>(name, &to, 0);                               \
  }                                                                                                                                    \
  extern "C" int cusolverDn##type##gesvdj_bufferSize(Word, int vectors, int thin, int m, int n, Word, int, Word, Word, int, Word, int, \
                                                     Word to, Word) {                                                                  \
    constexpr const char* name = "cusolverDn" #type "gesvdj_bufferSize";                                                               \
    return vectors || thin ? solver(name, to, singular_workspace(m, n, !thin)) : answer_zero<int>(name, &to, 0);                       \
  }                                                                                                                                    \
  extern "C" int cusolverDn##type##ormqr_bufferSize(Word, int right, int, int m, int n, int k, Word, int, Word, Word, int, Word to) {  \
    constexpr const char* name = "cusolverDn" #type "ormqr_bufferSize";                                                                \
    if (right) return answer_zero<int>(name, &to, 0);                                                                                  \
    return solver(name, to, times_q_workspace(m, n, k), times_q_unsure * (wide ? 8 : 4));                                              \
  }
RULED(S, false)
RULED(D, true)

extern "C" int cusolverDnXgeqrf_bufferSize(Word, Word, std::int64_t, std::int64_t n, int type, Word, std::int64_t, int, Word, int,
                                           Word card, Word host) {
  const AnyType x{"cusolverDnXgeqrf_bufferSize", Word(type), card, host};
  return x.known() ? x.say(aligned + x.number_bytes() * qr_workspace(n)) : x.say_nothing();
}

extern "C" int cusolverDnXpotrf_bufferSize(Word, Word, int upper, std::int64_t n, int type, Word, std::int64_t, int, Word card, Word host) {
  const AnyType x{"cusolverDnXpotrf_bufferSize", Word(type), card, host};
  return x.known() ? x.say(x.number_bytes() * cholesky_workspace(upper != 0, n, x.wide())) : x.say_nothing();
}

extern "C" int cusolverDnXsyevd_bufferSize(Word, Word, int, int, std::int64_t n, int type, Word, std::int64_t, int, Word, int, Word card,
                                           Word host) {
  const AnyType x{"cusolverDnXsyevd_bufferSize", Word(type), card, host};
  const std::int64_t each = x.number_bytes();
  return x.known() ? x.say(aligned + each * eigen_workspace(n), each * eigen_unsure) : x.say_nothing();
}

// 32 numbers once, and for each matrix what one has without them.
extern "C" int cusolverDnXsyevBatched_bufferSize(Word, Word, int, int, std::int64_t n, int type, Word, std::int64_t, int, Word, int,
                                                 Word card, Word host, std::int64_t matrices) {
  const AnyType x{"cusolverDnXsyevBatched_bufferSize", Word(type), card, host};
  const std::int64_t each = x.number_bytes();
  return x.known() ? x.say(aligned + each * (32 + matrices * (eigen_workspace(n) - 32)), each * matrices * eigen_unsure) : x.say_nothing();
}

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

TWO(cusolverDn, C, Z, geqrf_bufferSize, int, 5)
TWO(cusolverDn, C, Z, potrf_bufferSize, int, 5)
TWO(cusolverDn, C, Z, getrf_bufferSize, int, 5)
FOUR(cusolverDn, sytrf_bufferSize, int, 4)
FOUR(cusolverDn, gesvd_bufferSize, int, 3)
TWO(cusolverDn, C, Z, gesvdj_bufferSize, int, 12)
FOUR(cusolverDn, gesvdjBatched_bufferSize, int, 11)
FOUR(cusolverDn, gesvdaStridedBatched_bufferSize, int, 16)
TWO(cusolverDn, C, Z, ungqr_bufferSize, int, 7)
TWO(cusolverDn, C, Z, unmqr_bufferSize, int, 11)
TWO(cusolverDn, C, Z, heevd_bufferSize, int, 7)
TWO(cusolverDn, C, Z, heevj_bufferSize, int, 7)
TWO(cusolverDn, S, D, syevjBatched_bufferSize, int, 7)
TWO(cusolverDn, C, Z, heevjBatched_bufferSize, int, 7)
WORKSPACE(cusolverDnXgeev_bufferSize, std::size_t, 17, 18)
WORKSPACE(cusolverDnXsytrs_bufferSize, std::size_t, 11, 12)

WORKSPACE(cusparseSpMM_bufferSize, std::size_t, 10)
WORKSPACE(cusparseSDDMM_bufferSize, std::size_t, 10)
WORKSPACE(cusparseSpSM_bufferSize, std::size_t, 10)
WORKSPACE(cusparseSpMV_bufferSize, std::size_t, 9)
WORKSPACE(cusparseSpSV_bufferSize, std::size_t, 9)
WORKSPACE(cusparseSpMatGetSize, std::int64_t, 1, 2, 3)
WORKSPACE(cusparseLtMatmulGetWorkspace, std::size_t, 2)
WORKSPACE(cusparseXcoosort_bufferSizeExt, std::size_t, 6)
WORKSPACE(cusparseXcsrsort_bufferSizeExt, std::size_t, 6)
FOUR(cusparse, bsrsv2_bufferSize, int, 11)
FOUR(cusparse, bsrsm2_bufferSize, int, 13)
FOUR(cusparse, csrgeam2_bufferSizeExt, std::size_t, 19)

extern "C" int cufftXtMakePlanMany(int, int rank, const long long* lengths, Word, long long, long long, int, Word, long long, long long,
                                   int, long long, Word to, int computed) {
  constexpr const char* name = "cufftXtMakePlanMany";
  constexpr int complex_float = 4, complex_double = 5;
  const std::vector<std::int64_t> all(lengths, lengths + rank);
  if (!ruled() || (computed != complex_float && computed != complex_double) || !needs_no_workspace(all, computed == complex_double))
    return answer_zero<std::size_t>(name, &to, 0);
  return answer<std::size_t>(name, to, 0);
}

WORKSPACE(cudnnGetCTCLossWorkspaceSize, std::size_t, 8)
WORKSPACE(cudnnGetCTCLossWorkspaceSize_v8, std::size_t, 5)
WORKSPACE(cudnnGetConvolutionForwardWorkspaceSize, std::size_t, 6)
WORKSPACE(cudnnGetConvolutionBackwardDataWorkspaceSize, std::size_t, 6)
WORKSPACE(cudnnGetConvolutionBackwardFilterWorkspaceSize, std::size_t, 6)
