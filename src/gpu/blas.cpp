#include "gpu/blas.h"

#include <cublasLt.h>

#include <map>
#include <mutex>
#include <tuple>

#include "base/error.h"
#include "gpu/check.h"

namespace headroom::blas {

namespace {

void ok(cublasStatus_t s, const char* what) {
  check(s == CUBLAS_STATUS_SUCCESS, Code::cuda, "cuBLASLt: {} failed: {}", what, cublasLtGetStatusString(s));
}

cudaDataType type_of(DType t) {
  switch (t) {
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    default: throw Error(Code::unsupported, fmt::format("blas: {} is not served", name_of(t)));
  }
}

cublasLtHandle_t handle() {  // one per device, kept until the process ends
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;
  int device;
  cuda(cudaGetDevice(&device));
  std::lock_guard lock(mutex);
  auto [at, fresh] = handles.try_emplace(device, nullptr);
  if (fresh) ok(cublasLtCreate(&at->second), "making a handle");
  return at->second;
}

// cuBLASLt counts columns first, so a row-major matrix is the transposed one to it: Cᵀ = Bᵀ Aᵀ, and rows become columns.
struct Layout {
  cublasLtMatrixLayout_t raw = nullptr;
  Layout(const Matrix& x, std::int64_t rows, std::int64_t columns, std::int64_t count) {
    const bool t = x.transposed;
    ok(cublasLtMatrixLayoutCreate(&raw, type_of(x.dtype), std::uint64_t(t ? rows : columns), std::uint64_t(t ? columns : rows), x.row),
       "a layout");
    const int batch = int(count);
    ok(cublasLtMatrixLayoutSetAttribute(raw, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch), "a layout");
    ok(cublasLtMatrixLayoutSetAttribute(raw, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &x.batch, sizeof x.batch), "a layout");
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(raw); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
};

struct Description {
  cublasLtMatmulDesc_t raw = nullptr;
  explicit Description(const Product& p) {
    const bool tf32 = p.math == Math::tf32 && p.a.dtype == DType::f32;
    ok(cublasLtMatmulDescCreate(&raw, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F), "a description");
    const cublasOperation_t first = p.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, second = p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    ok(cublasLtMatmulDescSetAttribute(raw, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first), "a description");
    ok(cublasLtMatmulDescSetAttribute(raw, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second), "a description");
  }
  ~Description() { cublasLtMatmulDescDestroy(raw); }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
};

unsigned alignment_of(const void* p) {
  unsigned a = 256;
  while (reinterpret_cast<std::uintptr_t>(p) % a) a /= 2;
  return a;
}

// cuBLASLt's choice for a shape takes tens of microseconds to ask for, so it is remembered.
using Key = std::tuple<int, int, int, int, bool, bool, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                       std::int64_t, std::int64_t, std::int64_t, std::int64_t, unsigned, unsigned, unsigned>;

cublasLtMatmulAlgo_t algorithm(const Product& p, cublasLtHandle_t lt, const Description& d, const Layout& b, const Layout& a,
                               const Layout& c) {
  static std::mutex mutex;
  static std::map<Key, cublasLtMatmulAlgo_t> known;
  int device;
  cuda(cudaGetDevice(&device));
  const unsigned align_a = alignment_of(p.a.data), align_b = alignment_of(p.b.data), align_c = alignment_of(p.c.data);
  const Key key{device,  int(p.a.dtype), int(p.c.dtype), int(p.math), p.a.transposed, p.b.transposed, p.m,     p.n,     p.k,    p.count,
                p.a.row, p.b.row,        p.c.row,        p.a.batch,   p.b.batch,      p.c.batch,      align_a, align_b, align_c};
  std::lock_guard lock(mutex);
  const auto at = known.find(key);
  if (at != known.end()) return at->second;
  cublasLtMatmulPreference_t wish;
  ok(cublasLtMatmulPreferenceCreate(&wish), "a preference");
  const std::size_t bytes = workspace_bytes;
  cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
  cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align_b, sizeof align_b);
  cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align_a, sizeof align_a);
  cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align_c, sizeof align_c);
  cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align_c, sizeof align_c);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t s = cublasLtMatmulAlgoGetHeuristic(lt, d.raw, b.raw, a.raw, c.raw, c.raw, wish, 1, &found, &count);
  cublasLtMatmulPreferenceDestroy(wish);
  ok(s, "choosing an algorithm");
  check(count > 0, Code::unsupported, "cuBLASLt has no algorithm for {}x{}x{} {}", p.m, p.n, p.k, name_of(p.a.dtype));
  return known.emplace(key, found.algo).first->second;
}

}  // namespace

void multiply(const Product& p, void* workspace, void* stream) {
  if (p.m == 0 || p.n == 0 || p.count == 0) return;
  const Layout b(p.b, p.k, p.n, p.count), a(p.a, p.m, p.k, p.count), c(p.c, p.m, p.n, p.count);
  const Description d(p);
  const cublasLtHandle_t lt = handle();
  const cublasLtMatmulAlgo_t how = algorithm(p, lt, d, b, a, c);
  ok(cublasLtMatmul(lt, d.raw, &p.alpha, p.b.data, b.raw, p.a.data, a.raw, &p.beta, p.add ? p.add : p.c.data, c.raw, p.c.data, c.raw, &how, workspace,
                    workspace_bytes, static_cast<cudaStream_t>(stream)),
     "a product");
}

}  // namespace headroom::blas
