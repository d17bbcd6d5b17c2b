#include "ops/matmul/reference.h"

#include <cmath>

#include "base/convert.h"

namespace headroom::matmul {

namespace {

enum class Side : std::uint8_t { a, b };

// [lines, k] of A, [k, lines] of B.
std::vector<double> values_of(const Scaled& x, Side side) {
  const std::int64_t rows = x.values.shape[0], columns = x.values.shape[1];
  std::vector<double> all(std::size_t(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      all[std::size_t(i * columns + j)] = load_element(x.values.data, x.values.dtype, i * x.values.stride[0] + j * x.values.stride[1]) *
                                          double(side == Side::a ? x.scale_at(i, j) : x.scale_at(j, i));
  return all;
}

}  // namespace

Exact reference(const Scaled& a, const Scaled& b, Context& ctx) {
  check(a.values.shape.rank == 2 && b.values.shape.rank == 2 && a.values.shape[1] == b.values.shape[0], Code::bad_argument,
        "matmul: the reference multiplies two matrices that fit each other");
  const std::int64_t m = a.values.shape[0], k = a.values.shape[1], n = b.values.shape[1];
  const auto left = values_of(a, Side::a), right = values_of(b, Side::b);
  Exact out{m, n, std::vector<double>(std::size_t(m * n)), std::vector<double>(std::size_t(m * n))};
  ctx.share(m, [&](std::int64_t i, int) {
    double *value = out.value.data() + i * n, *size = out.size.data() + i * n;
    for (std::int64_t l = 0; l < k; ++l) {
      const double x = left[std::size_t(i * k + l)], *y = right.data() + l * n;
      for (std::int64_t j = 0; j < n; ++j) {
        value[j] += x * y[j];
        size[j] += std::abs(x * y[j]);
      }
    }
  });
  return out;
}

}  // namespace headroom::matmul
