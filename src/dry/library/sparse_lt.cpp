// cuSPARSELt: products whose left side keeps two of each four numbers (PyTorch's semi-structured matrices). Each is recorded as the dense product of its
// shape: what a card gains by the missing half was not measured. How much memory compressing and multiplying need is not known.
// The library itself brings a CUDA runtime that it was linked with, so its own functions would find no card.
#include <cstddef>
#include <cstdint>

#include "dry/cuda_types.h"
#include "dry/library/public.h"
#include "dry/library/work.h"
#include "dry/library/world.h"

using namespace headroom::dry;

namespace {

// What is kept at the beginning of the structures that callers bring, which are all larger.
struct Matrix {
  std::int64_t rows, columns;
  int type;
};

constexpr int transposed = 1;  // cusparseOperation_t

std::size_t bytes_of(int type) { return type == cuda_type::single ? 4 : type == cuda_type::half || type == cuda_type::brain ? 2 : 1; }

// Half of the numbers, and two bits for each kept one of 16 bits: PyTorch counts a matrix's rows from these shares.
std::size_t sixteenths_of(int type) { return bytes_of(type) == 1 ? 10 : 9; }

}  // namespace

extern "C" {
int cusparseLtInit(void*) { return ok; }

int cusparseLtDenseDescriptorInit(const void*, Matrix* out, std::int64_t rows, std::int64_t columns, std::int64_t, std::uint32_t, int type,
                                  int) {
  *out = {.rows = rows, .columns = columns, .type = type};
  return ok;
}
int cusparseLtStructuredDescriptorInit(const void*, Matrix* out, std::int64_t rows, std::int64_t columns, std::int64_t, std::uint32_t,
                                       int type, int, int) {
  *out = {.rows = rows, .columns = columns, .type = type};
  return ok;
}
int cusparseLtSpMMACompressedSize2(const void*, const Matrix* a, std::size_t* bytes, std::size_t* buffer_bytes) {
  *bytes = std::size_t(a->rows) * std::size_t(a->columns) * bytes_of(a->type) / 16 * sixteenths_of(a->type);
  *buffer_bytes = 0;
  note(Said::no_workspace, "cusparseLtSpMMACompressedSize2");
  say("workspace unknown:", "cusparseLtSpMMACompressedSize2");
  return ok;
}
int cusparseLtMatmulDescriptorInit(const void*, ProductShape* out, int left, int right, const Matrix* a, const Matrix* b, const Matrix*,
                                   const Matrix* d, int) {
  *out = {.m = d->rows,
          .n = d->columns,
          .k = left == transposed ? a->rows : a->columns,
          .type_a = a->type,
          .type_b = b->type,
          .type_c = d->type,
          .left_transposed = left == transposed,
          .right_transposed = right == transposed};
  return ok;
}
int cusparseLtMatmulPlanInit(const void*, ProductShape* plan, const ProductShape* matmul, const void*) {
  *plan = *matmul;
  return ok;
}
int cusparseLtMatmul(const void*, const ProductShape* plan, const void*, const void*, const void*, const void*, const void*, void*, void*,
                     const StreamHandle* streams, int count) {
  multiplied("cusparseLtMatmul", count > 0 ? streams[0] : nullptr, *plan);
  return ok;
}
int cusparseLtMatmulSearch(const void*, const ProductShape* plan, const void*, const void*, const void*, const void*, const void*, void*,
                           void*, const StreamHandle* streams, int count) {  // it tries kernels: one of them counts here
  multiplied("cusparseLtMatmulSearch", count > 0 ? streams[0] : nullptr, *plan);
  return ok;
}
int cusparseLtMatmulAlgGetAttribute(const void*, const void*, int, void* out, std::size_t bytes) {
  if (bytes == sizeof(int)) *static_cast<int*>(out) = 0;
  return ok;
}
}
