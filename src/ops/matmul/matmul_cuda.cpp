// Matmul on a GPU: cuBLASLt, whose sums are FP32 whatever the operands are; operands of 16 and 8 bits may have an FP32 product.
#include <algorithm>

#include "gpu/blas.h"
#include "ops/matmul/impl.h"

namespace headroom::matmul {

namespace {

blas::Matrix matrix_of(const Scaled& x, std::int64_t first) {
  const Tensor& t = x.values;
  const auto last = std::size_t(t.shape.rank - 1), row = last - 1;
  std::int64_t offset = 0;
  if (t.shape.rank == 4) offset = first * t.stride[0];
  const bool plain = t.stride[last] == 1 || t.shape[int(last)] <= 1;
  const std::int64_t least = plain ? t.shape[int(last)] : t.shape[int(row)];
  return {.data = t.as<std::byte>() + offset * std::int64_t(size_of(t.dtype)),
          .dtype = t.dtype,
          .row = std::max(least, plain ? t.stride[row] : t.stride[last]),
          .batch = t.shape.rank > 2 ? t.stride[row - 1] : 0,
          .transposed = !plain,
          .scale = x.scale.data,
          .kind = x.kind};
}

}  // namespace

void multiply_cuda(const Product& p, const Tensor& workspace, Context& ctx) {
  const int last = p.c.shape.rank - 1;
  if (p.c.count() == 0) return;
  for (std::int64_t first = 0; first < (last == 3 ? p.c.shape[0] : 1); ++first) {
    blas::Gemm q{.a = matrix_of(p.a, first),
                 .b = matrix_of(p.b, first),
                 .c = matrix_of(p.c, first),
                 .m = p.c.shape[last - 1],
                 .n = p.c.shape[last],
                 .k = p.a.values.shape[last],
                 .count = last > 1 ? p.c.shape[last - 2] : 1,
                 .alpha = p.alpha,
                 .beta = p.beta,
                 .math = p.math,
                 .whole_sums = size_of(p.a.values.dtype) == 1 && p.sums == Sums::whole};
    if (p.add) q.add = matrix_of(p.add, first).data;
    blas::multiply(q, workspace.data, ctx.stream);
  }
}

}  // namespace headroom::matmul
