// Algorithms that cuBLASLt does not offer: where it says that one can do a product, the result is that of one that it offers.
#include "gpu/cublaslt_variations.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/random.h"
#include "gpu/check.h"
#include "gpu/device.h"
#include "gpu/place.h"
#include "memory/arena.h"

namespace headroom {
namespace {

struct Product {  // C[m, n] = A[m, k] · B[k, n] + D, column by column as cuBLASLt counts
  std::int64_t m, n, k;
  bool transpose_a, transpose_b;
  DType operands, result;
  bool addend;
};

cudaDataType_t type_of(DType t) { return t == DType::f32 ? CUDA_R_32F : t == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F; }

class OnACard {  // one product, its operands and the answers to cuBLASLt's questions
 public:
  explicit OnACard(const Product& p)
      : p_(p),
        memory_(place_.take(std::size_t(3) << 30)),
        arena_(memory_.data(), memory_.bytes()),
        workspace_(arena_.make("w", DType::f32, {8 << 20})) {
    const auto normal = [&](const char* name, DType type, std::int64_t count, std::uint64_t seed) {
      const Tensor t = arena_.make(name, type, {count});
      place_.fill_normal(t, Random{seed});
      return t;
    };
    a_ = normal("a", p.operands, p.m * p.k, 1), b_ = normal("b", p.operands, p.k * p.n, 2), d_ = normal("d", p.result, p.m * p.n, 3);
    c_ = arena_.make("c", p.result, {p.m * p.n + margin});
    const auto& lt = blas::cublaslt();
    lt.cublasLtCreate(&handle_);
    lt.cublasLtMatmulDescCreate(&description_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const cublasOperation_t of_a = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, of_b = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    lt.cublasLtMatmulDescSetAttribute(description_, CUBLASLT_MATMUL_DESC_TRANSA, &of_a, sizeof of_a);
    lt.cublasLtMatmulDescSetAttribute(description_, CUBLASLT_MATMUL_DESC_TRANSB, &of_b, sizeof of_b);
    const auto layout = [&](DType type, std::int64_t rows, std::int64_t columns) {
      cublasLtMatrixLayout_t made = nullptr;
      lt.cublasLtMatrixLayoutCreate(&made, type_of(type), std::uint64_t(rows), std::uint64_t(columns), rows);
      return made;
    };
    of_a_ = p.transpose_a ? layout(p.operands, p.k, p.m) : layout(p.operands, p.m, p.k);
    of_b_ = p.transpose_b ? layout(p.operands, p.n, p.k) : layout(p.operands, p.k, p.n);
    of_c_ = layout(p.result, p.m, p.n);
  }

  ~OnACard() {
    const auto& lt = blas::cublaslt();
    for (const cublasLtMatrixLayout_t layout : {of_a_, of_b_, of_c_}) lt.cublasLtMatrixLayoutDestroy(layout);
    lt.cublasLtMatmulDescDestroy(description_);
  }
  OnACard(const OnACard&) = delete;
  OnACard& operator=(const OnACard&) = delete;

  cublasLtMatmulAlgo_t offered() const {
    cublasLtMatmulPreference_t none;
    cublasLtMatmulHeuristicResult_t first{};
    int count = 0;
    const auto& lt = blas::cublaslt();
    lt.cublasLtMatmulPreferenceCreate(&none);
    lt.cublasLtMatmulAlgoGetHeuristic(handle_, description_, of_a_, of_b_, of_c_, of_c_, none, 1, &first, &count);
    lt.cublasLtMatmulPreferenceDestroy(none);
    EXPECT_EQ(count, 1);
    return first.algo;
  }

  bool can(const cublasLtMatmulAlgo_t& how) const {
    cublasLtMatmulHeuristicResult_t wants{};
    return blas::cublaslt().cublasLtMatmulAlgoCheck(handle_, description_, of_a_, of_b_, of_c_, of_c_, &how, &wants) ==
               CUBLAS_STATUS_SUCCESS &&
           wants.workspaceSize <= 16;
  }

  std::vector<char> result(const cublasLtMatmulAlgo_t& how) {  // of a poisoned C, with what lies behind it
    std::vector<char> bytes(c_.bytes(), char(0xff));
    place_.copy_in(c_.data, bytes.data(), bytes.size());
    const float one = 1, beta = p_.addend ? 1 : 0;
    EXPECT_EQ(
        blas::cublaslt().cublasLtMatmul(handle_, description_, &one, a_.data, of_a_, b_.data, of_b_, &beta, p_.addend ? d_.data : c_.data,
                                        of_c_, c_.data, of_c_, &how, workspace_.data, workspace_.bytes(), cuda_stream(place_.stream())),
        CUBLAS_STATUS_SUCCESS);
    place_.copy_out(bytes.data(), c_.data, bytes.size());
    return bytes;
  }

 private:
  static constexpr std::int64_t margin = 4096;

  Product p_;
  Place place_{cuda_device(0)};
  PlaceMemory memory_;
  Arena arena_;
  Tensor workspace_, a_, b_, c_, d_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatrixLayout_t of_a_ = nullptr, of_b_ = nullptr, of_c_ = nullptr;
};

TEST(CublasltVariations, GiveTheBitsOfWhatIsOffered) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "needs a CUDA device";
  int major = 0;
  cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  constexpr auto b = DType::bf16, h = DType::f16, f = DType::f32;
  for (const Product& p : {Product{3072, 4096, 768, true, false, b, b, false}, Product{768, 4096, 3072, true, false, b, b, true},
                           Product{1280, 10000, 4096, false, true, b, f, false}, Product{1112, 3000, 1032, false, false, b, b, false},
                           Product{1288, 2056, 1000, true, false, h, h, true}, Product{1032, 2344, 4096, false, true, h, f, true}}) {
    SCOPED_TRACE(fmt::format("{} x {} x {}, {} to {}", p.m, p.n, p.k, name_of(p.operands), name_of(p.result)));
    OnACard card(p);
    const auto offered = card.offered();
    const auto expected = card.result(offered);
    int tried = 0;
    for (const auto& how : blas::variations_of(offered)) {
      if (!card.can(how)) continue;
      ++tried;
      ASSERT_EQ(card.result(how), expected) << "variation " << tried;
    }
    if (major == 9) { EXPECT_GE(tried, 10); }
  }
}

}  // namespace
}  // namespace headroom
