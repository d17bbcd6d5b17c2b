#include "gpu/blas.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "gpu/check.h"
#include "gpu/cublaslt.h"
#include "gpu/cublaslt_variations.h"
#include "gpu/fastest_way.h"
#include "gpu/plan_file.h"

namespace headroom::blas {

namespace {

void ok(cublasStatus_t s, const char* what) {
  check(s == CUBLAS_STATUS_SUCCESS, Code::cuda, "cuBLASLt: {} failed: {}", what, cublaslt().cublasLtGetStatusString(s));
}

cudaDataType type_of(DType t) {
  switch (t) {
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    case DType::e4m3: return CUDA_R_8F_E4M3;
    case DType::e5m2: return CUDA_R_8F_E5M2;
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
  if (fresh) ok(cublaslt().cublasLtCreate(&at->second), "making a handle");
  return at->second;
}

// cuBLASLt is column-major, so it sees a row-major matrix as its transpose: it computes Cᵀ = Bᵀ Aᵀ, and rows become columns.
struct Layout {
  cublasLtMatrixLayout_t raw = nullptr;
  Layout(const Matrix& x, std::int64_t rows, std::int64_t columns, std::int64_t count) {
    const bool t = x.transposed;
    ok(cublaslt().cublasLtMatrixLayoutCreate(&raw, type_of(x.dtype), std::uint64_t(t ? rows : columns), std::uint64_t(t ? columns : rows),
                                             x.row),
       "a layout");
    const int batch = int(count);
    ok(cublaslt().cublasLtMatrixLayoutSetAttribute(raw, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch), "a layout");
    ok(cublaslt().cublasLtMatrixLayoutSetAttribute(raw, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &x.batch, sizeof x.batch), "a layout");
  }
  ~Layout() { cublaslt().cublasLtMatrixLayoutDestroy(raw); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
};

std::int32_t mode_of(ScaleKind k) {
  switch (k) {
    case ScaleKind::one: break;
    case ScaleKind::row: return CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    case ScaleKind::run: return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case ScaleKind::block: return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  }
  return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
}

struct Description {
  cublasLtMatmulDesc_t raw = nullptr;
  explicit Description(const Gemm& p) {
    const bool tf32 = p.math == Math::tf32 && p.a.dtype == DType::f32;
    ok(cublaslt().cublasLtMatmulDescCreate(&raw, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F), "a description");
    const cublasOperation_t first = p.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, second = p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    ok(cublaslt().cublasLtMatmulDescSetAttribute(raw, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first), "a description");
    ok(cublaslt().cublasLtMatmulDescSetAttribute(raw, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second), "a description");
    if (size_of(p.a.dtype) > 1) return;
    const std::int8_t fast = p.whole_sums;
    ok(cublaslt().cublasLtMatmulDescSetAttribute(raw, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast), "a description");
    scale(p.b, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
    scale(p.a, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, CUBLASLT_MATMUL_DESC_B_SCALE_MODE);
  }
  void scale(const Matrix& x, cublasLtMatmulDescAttributes_t pointer, cublasLtMatmulDescAttributes_t mode) const {
    if (!x.scale) return;
    ok(cublaslt().cublasLtMatmulDescSetAttribute(raw, pointer, &x.scale, sizeof x.scale), "a scale");
    const std::int32_t kind = mode_of(x.kind);  // row, run and block: an error before cuBLASLt 12.9
    if (x.kind != ScaleKind::one) ok(cublaslt().cublasLtMatmulDescSetAttribute(raw, mode, &kind, sizeof kind), "a kind of scale");
  }
  ~Description() { cublaslt().cublasLtMatmulDescDestroy(raw); }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
};

unsigned alignment_of(const void* p) {
  unsigned a = 256;
  while (reinterpret_cast<std::uintptr_t>(p) % a) a /= 2;
  return a;
}

struct Chosen {
  cublasLtMatmulAlgo_t how;
  std::size_t lent;  // bytes of the workspace
};

struct Book {  // algorithms of one card's products
  std::mutex mutex;
  std::filesystem::path file;
  Algorithms measured;
  std::map<std::string, Chosen> known;
  int measuring = 0;
  bool grown = false;
};

Book& book() {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<Book>> books;
  int device;
  cuda(cudaGetDevice(&device));
  std::lock_guard lock(mutex);
  auto& b = books[device];
  if (!b) {
    cudaDeviceProp p;
    cuda(cudaGetDeviceProperties(&p, device));
    b = std::make_unique<Book>();
    b->file =
        plan_file_of(fmt::format("{} cublasLt {}, 16 and 8 bits in a fixed order, with tiles that are not offered, timed in long rows",
                                 p.name, cublaslt().cublasLtGetVersion()));
    b->measured = read_plans(b->file);
  }
  return *b;
}

std::string key_of(const Gemm& p) {
  const auto matrix = [](const Matrix& x) {
    const std::string scale = x.scale ? fmt::format(".{}", name_of(x.kind)) : "";
    return fmt::format("{}{}.{}.{}.{}{}", name_of(x.dtype), x.transposed ? "t" : "", x.row, x.batch, alignment_of(x.data), scale);
  };
  const char* addend = p.beta == 0 ? "" : !p.add || p.add == p.c.data ? "+c" : "+d";
  return fmt::format("{}x{}x{}x{}{}:{}:{}:{}{}", p.m, p.n, p.k, p.count,
                     p.math == Math::tf32 ? "tf32"
                     : p.whole_sums       ? "whole"
                                          : "",
                     matrix(p.a), matrix(p.b), matrix(p.c), addend);
}

struct Call {  // one product, ready to be launched with any algorithm
  const Gemm& p;
  Layout b, a, c;
  Description d;
  void* workspace;
  cudaStream_t stream;

  Call(const Gemm& product, void* at, void* on)
      : p(product),
        b(p.b, p.k, p.n, p.count),
        a(p.a, p.m, p.k, p.count),
        c(p.c, p.m, p.n, p.count),
        d(p),
        workspace(at),
        stream(cuda_stream(on)) {}

  cublasStatus_t start(const Chosen& plan) const {
    return cublaslt().cublasLtMatmul(handle(), d.raw, &p.alpha, p.b.data, b.raw, p.a.data, a.raw, &p.beta, p.add ? p.add : p.c.data, c.raw,
                                     p.c.data, c.raw, &plan.how, workspace, plan.lent, stream);
  }

  // An algorithm that needs a few bytes distributes tiles by a counter, which a fill resets before every product. Without workspace it
  // distributes them in a fixed order, as fast and without the fill (bench/lab/step.md). One that needs more gets the whole workspace.
  // FP32 has no such algorithms; TF32 without workspace takes up to 2.7 times as long.
  Chosen with_workspace(const cublasLtMatmulAlgo_t& how) const {
    return {how, size_of(p.a.dtype) <= 2 && at_most_counts(how) ? 0 : workspace_bytes};
  }

  bool at_most_counts(const cublasLtMatmulAlgo_t& how) const {  // it can do this product, and needs no workspace but a counter
    constexpr std::size_t counter_bytes = 16;
    cublasLtMatmulHeuristicResult_t wants{};
    const cublasStatus_t s = cublaslt().cublasLtMatmulAlgoCheck(handle(), d.raw, b.raw, a.raw, c.raw, c.raw, &how, &wants);
    return s == CUBLAS_STATUS_SUCCESS && wants.workspaceSize <= counter_bytes;
  }

  // Short ones are measured by a few runs alone, among what is offered: their times are hardly more than those of the fills between.
  bool is_long() const { return p.flops() >= 2e9; }  // 2.7 us at 754 TFLOP/s, what products of an H200 reach

  // What cuBLASLt offers, and for a long product the first of it that needs no workspace with other tiles.
  // Kernels that were tried stay loaded, so a card that is nearly full keeps to what is offered: a forecast that fits counts on its bytes.
  std::vector<Chosen> ways() const {
    constexpr std::size_t room_for_kernels = 256 << 20;
    auto all = offered(12);
    const auto plain = std::find_if(all.begin(), all.end(), [](const Chosen& way) { return way.lent == 0; });
    std::size_t left = 0, of = 0;
    cuda(cudaMemGetInfo(&left, &of));
    if (plain == all.end() || !is_long() || left < room_for_kernels) return all;
    for (const auto& how : variations_of(plain->how))
      if (at_most_counts(how)) all.push_back({how, 0});
    return all;
  }

  // For types of 16 and 8 bits, prefer the algorithms that cuBLASLt offers without workspace to those that need a counter or nothing.
  std::vector<Chosen> offered(int most) const {
    auto found = asked(most, workspace_bytes);
    const auto lends_nothing = [&](const auto& f) { return with_workspace(f.algo).lent == 0; };
    if (std::any_of(found.begin(), found.end(), lends_nothing))
      if (const auto without = asked(most, 0); !without.empty()) {
        std::erase_if(found, lends_nothing);
        found.insert(found.begin(), without.begin(), without.end());
      }
    check(!found.empty(), Code::unsupported, "cuBLASLt has no algorithm for {}x{}x{} {}", p.m, p.n, p.k, name_of(p.a.dtype));
    std::vector<Chosen> all;
    for (const auto& f : found) all.push_back(with_workspace(f.algo));
    return all;
  }

  std::vector<cublasLtMatmulHeuristicResult_t> asked(int most, std::size_t bytes) const {
    const unsigned of_a = alignment_of(p.a.data), of_b = alignment_of(p.b.data), of_d = alignment_of(p.c.data),
                   of_c = p.add ? alignment_of(p.add) : of_d;
    const std::uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;  // FP32 and in order: the same bits every time
    cublasLtMatmulPreference_t wish;
    ok(cublaslt().cublasLtMatmulPreferenceCreate(&wish), "a preference");
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
      cublaslt().cublasLtMatmulPreferenceSetAttribute(wish, what, &value, sizeof value);
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, bytes);
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, of_b);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, of_a);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_c);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, of_d);
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(most));
    int count = 0;
    const cublasStatus_t s =
        cublaslt().cublasLtMatmulAlgoGetHeuristic(handle(), d.raw, b.raw, a.raw, c.raw, c.raw, wish, most, found.data(), &count);
    cublaslt().cublasLtMatmulPreferenceDestroy(wish);
    if (s == CUBLAS_STATUS_NOT_SUPPORTED) return {};
    ok(s, "choosing an algorithm");
    found.resize(static_cast<std::size_t>(count));
    return found;
  }

  // Mean time of `runs` runs in a row; infinity if the plan does not run. The workspace is filled before each, as in a step much of L2 holds other data.
  float ms_of_run(const Chosen& plan, int runs) const {
    cudaEvent_t begin, end;
    cuda(cudaEventCreate(&begin));
    cuda(cudaEventCreate(&end));
    cuda(cudaEventRecord(begin, stream));
    bool works = true;
    for (int i = 0; works && i < runs; ++i) {
      cuda(cudaMemsetAsync(workspace, 0, workspace_bytes, stream));
      works = start(plan) == CUBLAS_STATUS_SUCCESS;
    }
    cuda(cudaEventRecord(end, stream));
    cuda(cudaEventSynchronize(end));
    float ms;
    cuda(cudaEventElapsedTime(&ms, begin, end));
    cuda(cudaEventDestroy(begin));
    cuda(cudaEventDestroy(end));
    return works ? ms / float(runs) : std::numeric_limits<float>::infinity();
  }

  Chosen fastest() const {
    const auto all = ways();
    return all[fastest_way(
        all.size(), [&](std::size_t i, int runs) { return ms_of_run(all[i], runs); }, is_long())];
  }
};

Chosen plan_of(const Call& call) {
  Book& b = book();
  const std::string key = key_of(call.p);
  std::lock_guard lock(b.mutex);
  const auto kept = b.measured.find(key);
  if (kept == b.measured.end() && b.measuring > 0) {
    const Chosen plan = call.fastest();
    b.measured[key] = std::bit_cast<Algorithm>(plan.how);
    b.grown = true;
    return b.known[key] = plan;
  }
  const auto at = b.known.find(key);  // the heuristic takes tens of microseconds
  if (at != b.known.end()) return at->second;
  return b.known[key] =
             kept != b.measured.end() ? call.with_workspace(std::bit_cast<cublasLtMatmulAlgo_t>(kept->second)) : call.offered(1).front();
}

}  // namespace

void multiply(const Gemm& p, void* workspace, void* stream) {
  if (p.m == 0 || p.n == 0 || p.count == 0) return;
  const Call call(p, workspace, stream);
  const Chosen plan = plan_of(call);
  cublasStatus_t s = call.start(plan);
  if (s != CUBLAS_STATUS_SUCCESS && plan.lent == 0) s = call.start({plan.how, workspace_bytes});  // it needs its counter
  ok(s, "a product");
}

Measuring::Measuring() {
  Book& b = book();
  std::lock_guard lock(b.mutex);
  if (!b.file.empty() && write_plans(b.file, b.measured)) ++b.measuring;
}

Measuring::~Measuring() {
  Book& b = book();
  std::lock_guard lock(b.mutex);
  if (b.measuring > 0) --b.measuring;
  if (!b.grown) return;
  b.grown = false;
  Algorithms all = read_plans(b.file);  // another process may have added algorithms
  all.insert(b.measured.begin(), b.measured.end());
  write_plans(b.file, all);
}

}  // namespace headroom::blas
