// Matmul on the CPU: C is split into tiles by its shape alone. Each tile is one single-threaded OpenBLAS call over the whole of k
// (FP32), or one call per panel of k, widened to FP32 first (smaller and mixed dtypes).
// Why OpenBLAS, and why not its own threads: docs/decisions/cpu-matmul.md.
#include <cblas.h>

#include <algorithm>
#include <mutex>

#include "base/convert.h"
#include "base/divide.h"
#include "ops/matmul/impl.h"

namespace headroom::matmul {

namespace {

constexpr std::int64_t panel = 256;  // of k, when operands are widened: three 256² FP32 tiles are 768 KiB, most of an L2

struct Matrix {  // one matrix of a batch
  std::byte* data;
  DType dtype;
  std::int64_t row, column;  // strides, in elements
  std::byte* at(std::int64_t i, std::int64_t j) const { return data + (i * row + j * column) * std::int64_t(size_of(dtype)); }
};

Matrix matrix_of(const Tensor& t, std::int64_t index) {
  const int last = t.shape.rank - 1;
  std::int64_t at = 0;
  for (int d = last - 2; d >= 0; --d) {
    at += index % t.shape[d] * t.stride[std::size_t(d)];
    index /= t.shape[d];
  }
  return {t.as<std::byte>() + at * std::int64_t(size_of(t.dtype)), t.dtype, t.stride[std::size_t(last - 1)], t.stride[std::size_t(last)]};
}

struct Sizes {
  std::int64_t batch, m, n, k, tile_m, tile_n;
  std::int64_t tiles_m() const { return ceil_div(m, tile_m); }
  std::int64_t tiles_n() const { return ceil_div(n, tile_n); }
  std::int64_t pieces() const { return batch * tiles_m() * tiles_n(); }
};

Sizes sizes_of(const Product& p, bool widened) {
  const int last = p.c.shape.rank - 1;
  Sizes s{1, p.c.shape[last - 1], p.c.shape[last], p.a.shape[last], 0, 0};
  for (int d = 0; d < last - 1; ++d) s.batch *= p.c.shape[d];
  if (s.batch == 0 || s.m == 0 || s.n == 0) {
    s.batch = 0;
    s.tile_m = s.tile_n = 1;
    return s;
  }
  // Large enough that packing inside the library (m·k + k·n moves for m·n·k multiplies) is negligible, and at least 16 pieces if
  // there is enough work.
  s.tile_m = s.tile_n = widened ? panel : 1024;
  const auto too_few = [&] { return s.pieces() < 16 && double(s.tile_m) * double(s.tile_n) * double(s.k) > 0x1p22; };
  while (!widened && too_few() && std::max(s.tile_m, s.tile_n) > 128) (s.tile_m >= s.tile_n ? s.tile_m : s.tile_n) /= 2;
  return s;
}

int leading(std::int64_t stride, std::int64_t width) { return int(std::max<std::int64_t>({stride, width, 1})); }

// c += or = alpha a b, FP32, of one tile.
void sgemm(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const Matrix& a, const Matrix& b, float beta, const Matrix& c) {
  const bool a_plain = a.column == 1 || k <= 1, b_plain = b.column == 1 || n <= 1;
  cblas_sgemm(CblasRowMajor, a_plain ? CblasNoTrans : CblasTrans, b_plain ? CblasNoTrans : CblasTrans, int(m), int(n), int(k), alpha,
              reinterpret_cast<const float*>(a.data), a_plain ? leading(a.row, k) : leading(a.column, m),
              reinterpret_cast<const float*>(b.data), b_plain ? leading(b.row, n) : leading(b.column, k), beta,
              reinterpret_cast<float*>(c.data), leading(c.row, n));
}

Matrix widened(const Matrix& from, std::int64_t rows, std::int64_t columns, float* to) {
  const auto all = [&]<class T>() {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) to[i * columns + j] = widen(*reinterpret_cast<const T*>(from.at(i, j)));
  };
  switch (from.dtype) {
    case DType::e4m3: all.template operator()<e4m3>(); break;
    case DType::e5m2: all.template operator()<e5m2>(); break;
    default: with_float(from.dtype, all);
  }
  return {reinterpret_cast<std::byte*>(to), DType::f32, columns, 1};
}

void multiply_small(const Sizes& s, const Product& p, Matrix a, Matrix b, Matrix c, std::int64_t m, std::int64_t n, float* tiles) {
  float *wide_a = tiles, *wide_b = tiles + panel * panel, *sum = tiles + 2 * panel * panel;
  const Matrix wide_c{reinterpret_cast<std::byte*>(sum), DType::f32, n, 1};
  std::fill_n(sum, m * n, 0.0f);
  for (std::int64_t k = 0; k < s.k; k += panel) {
    const auto depth = std::min(panel, s.k - k);
    sgemm(m, n, depth, 1, widened({a.at(0, k), a.dtype, a.row, a.column}, m, depth, wide_a),
          widened({b.at(k, 0), b.dtype, b.row, b.column}, depth, n, wide_b), 1, wide_c);
  }
  with_float(c.dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        T& out = *reinterpret_cast<T*>(c.at(i, j));
        const float value = p.alpha * sum[i * n + j];
        out = narrow<T>(p.beta == 0 ? value : value + p.beta * widen(out));
      }
  });
}

// OpenBLAS 0.3.21 counts in 32 bits inside its kernels for small matrices: one that spans 2³¹ elements crashes
// them. Such a product is a few milliseconds of plain loops.
bool spans_too_far(const Product& p) {
  const auto spans = [](const Tensor& t) {
    const int last = t.shape.rank - 1;
    return (t.shape[last - 1] - 1) * t.stride[std::size_t(last - 1)] + (t.shape[last] - 1) * t.stride[std::size_t(last)] >= 1ll << 31;
  };
  const int last = p.c.shape.rank - 1;
  return double(p.c.shape[last - 1]) * double(p.c.shape[last]) * double(p.a.shape[last]) < 0x1p24 &&
         (spans(p.a) || spans(p.b) || spans(p.c));
}

void multiply_far(const Sizes& s, const Product& p, const Matrix& a, const Matrix& b, const Matrix& c, std::int64_t m, std::int64_t n) {
  const auto value = [](const Matrix& x, std::int64_t i, std::int64_t j) -> float& { return *reinterpret_cast<float*>(x.at(i, j)); };
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (std::int64_t l = 0; l < s.k; ++l) sum += value(a, i, l) * value(b, l, j);
      float& out = value(c, i, j);
      out = p.beta == 0 ? p.alpha * sum : p.alpha * sum + p.beta * out;
    }
}

}  // namespace

void multiply_cpu(const Product& product, Context& ctx) {
  Product p = product;
  const bool small = p.a.dtype != DType::f32 || p.b.dtype != DType::f32 || p.c.dtype != DType::f32;
  const bool far = !small && spans_too_far(p);
  Tensor tiles;
  if (small) tiles = ctx.arena.make("matmul.tiles", DType::f32, {ctx.workers(), 3 * panel * panel});
  if (ctx.dry()) return;
  for (const Tensor& scale : {p.a_scale, p.b_scale})
    if (scale) p.alpha *= *scale.as<float>();
  static std::once_flag once;
  std::call_once(once, [] { openblas_set_num_threads(1); });  // our own threads call it: docs/decisions/cpu-matmul.md
  const Sizes s = sizes_of(p, small);
  ctx.share(s.pieces(), [&](std::int64_t piece, int worker) {
    const auto index = piece / (s.tiles_m() * s.tiles_n()), tile = piece % (s.tiles_m() * s.tiles_n());
    const auto i = tile / s.tiles_n() * s.tile_m, j = tile % s.tiles_n() * s.tile_n;
    const auto m = std::min(s.tile_m, s.m - i), n = std::min(s.tile_n, s.n - j);
    Matrix a = matrix_of(p.a, index), b = matrix_of(p.b, index), c = matrix_of(p.c, index);
    a.data = a.at(i, 0);
    b.data = b.at(0, j);
    c.data = c.at(i, j);
    if (small)
      multiply_small(s, p, a, b, c, m, n, tiles.as<float>() + worker * 3 * panel * panel);
    else if (far)
      multiply_far(s, p, a, b, c, m, n);
    else
      sgemm(m, n, s.k, p.alpha, a, b, p.beta, c);
  });
}

}  // namespace headroom::matmul
