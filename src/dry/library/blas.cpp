// cuBLAS: handles, and products with their shapes. Every matrix product of PyTorch's comes through here or through blas_lt.cpp; the functions of
// vectors and triangles are in names.inc.
#include <cstdint>

#include "dry/cuda_types.h"
#include "dry/library/beside.h"
#include "dry/library/public.h"
#include "dry/library/work.h"
#include "dry/library/world.h"

using namespace headroom::dry;

namespace {

struct Handle {
  StreamHandle stream = nullptr;
  void* workspace = nullptr;
  int math = 0, pointers = 0, units = 0;
};

struct Sides {  // what a caller says of them: 0 as they are, else transposed
  int left, right;
};

int product(const char* name, const Handle* h, Sides sides, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch, int type_a,
            int type_b = -1, int type_c = -1, int compute = -1) {
  constexpr int math_tf32 = 3;
  if (compute < 0 && h->math == math_tf32 && type_a == cuda_type::single) compute = cublas_compute::fast_tf32;
  multiplied(name, h->stream,
             {.m = m,
              .n = n,
              .k = k,
              .batch = batch,
              .type_a = type_a,
              .type_b = type_b < 0 ? type_a : type_b,
              .type_c = type_c < 0 ? type_a : type_c,
              .compute = compute,
              .left_transposed = sides.left != 0,
              .right_transposed = sides.right != 0});
  return ok;
}

}  // namespace

extern "C" {
int cublasCreate_v2(Handle** out) {
  takes_beside(Beside::blas_handle, device());
  *out = new Handle;
  return ok;
}
int cublasDestroy_v2(Handle* h) {
  delete h;
  return ok;
}
int cublasSetStream_v2(Handle* h, StreamHandle s) {
  h->stream = s;
  return ok;
}
int cublasGetStream_v2(const Handle* h, StreamHandle* s) {
  *s = h->stream;
  return ok;
}
int cublasSetWorkspace_v2(Handle* h, void* p, std::size_t) {
  if (p && p != h->workspace) tell_workspace(p);
  h->workspace = p;
  return ok;
}
int cublasSetMathMode(Handle* h, int mode) {
  h->math = mode;
  return ok;
}
int cublasGetMathMode(const Handle* h, int* mode) {
  *mode = h->math;
  return ok;
}
int cublasSetPointerMode_v2(Handle* h, int mode) {
  h->pointers = mode;
  return ok;
}
int cublasGetPointerMode_v2(const Handle* h, int* mode) {
  *mode = h->pointers;
  return ok;
}
int cublasSetSmCountTarget(Handle* h, int units) {
  h->units = units;
  return ok;
}
int cublasGetSmCountTarget(const Handle* h, int* units) {
  *units = h->units;
  return ok;
}
int cublasSetAtomicsMode(Handle*, int) { return ok; }

#define PRODUCTS(letter, type)                                                                                                         \
  int cublas##letter##gemm_v2(const Handle* h, int a, int b, int m, int n, int k) {                                                    \
    return product("cublas" #letter "gemm", h, {a, b}, m, n, k, 1, type);                                                              \
  }                                                                                                                                    \
  int cublas##letter##gemmStridedBatched(const Handle* h, int a, int b, int m, int n, int k, const void*, const void*, int, long long, \
                                         const void*, int, long long, const void*, void*, int, long long, int batch) {                 \
    return product("cublas" #letter "gemmStridedBatched", h, {a, b}, m, n, k, batch, type);                                            \
  }                                                                                                                                    \
  int cublas##letter##gemmBatched(const Handle* h, int a, int b, int m, int n, int k, const void*, const void*, int, const void*, int, \
                                  const void*, void*, int, int batch) {                                                                \
    return product("cublas" #letter "gemmBatched", h, {a, b}, m, n, k, batch, type);                                                   \
  }
PRODUCTS(S, cuda_type::single)
PRODUCTS(D, cuda_type::twice)
PRODUCTS(C, cuda_type::complex_single)
PRODUCTS(Z, cuda_type::complex_twice)
#undef PRODUCTS

int cublasSgemmEx(const Handle* h, int a, int b, int m, int n, int k, const void*, const void*, int type_a, int, const void*, int type_b,
                  int, const void*, void*, int type_c, int) {
  return product("cublasSgemmEx", h, {a, b}, m, n, k, 1, type_a, type_b, type_c);
}
int cublasGemmEx(const Handle* h, int a, int b, int m, int n, int k, const void*, const void*, int type_a, int, const void*, int type_b,
                 int, const void*, void*, int type_c, int, int compute, int) {
  return product("cublasGemmEx", h, {a, b}, m, n, k, 1, type_a, type_b, type_c, compute);
}
int cublasGemmStridedBatchedEx(const Handle* h, int a, int b, int m, int n, int k, const void*, const void*, int type_a, int, long long,
                               const void*, int type_b, int, long long, const void*, void*, int type_c, int, long long, int batch,
                               int compute, int) {
  return product("cublasGemmStridedBatchedEx", h, {a, b}, m, n, k, batch, type_a, type_b, type_c, compute);
}
int cublasGemmBatchedEx(const Handle* h, int a, int b, int m, int n, int k, const void*, const void*, int type_a, int, const void*,
                        int type_b, int, const void*, void*, int type_c, int, int batch, int compute, int) {
  return product("cublasGemmBatchedEx", h, {a, b}, m, n, k, batch, type_a, type_b, type_c, compute);
}
}
