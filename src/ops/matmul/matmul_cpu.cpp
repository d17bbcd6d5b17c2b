// Matmul on the CPU: C is split into tiles by its shape alone. Each tile is one single-threaded OpenBLAS call over the whole of k
// (FP32), or one call per panel of k, widened to FP32 first (smaller and mixed dtypes, scales, two-level sums).
// Why OpenBLAS, and why not its own threads: docs/decisions/cpu-matmul.md.
#include <algorithm>
#include <array>

#include "base/convert.h"
#include "base/divide.h"
#include "ops/matmul/hopper_adder.h"
#include "ops/matmul/impl.h"
#include "ops/openblas.h"

namespace headroom::matmul {

namespace {

constexpr std::int64_t panel = 256;  // numbers of k, when operands are widened: three 256² FP32 tiles are 768 KiB, most of an L2

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
  Sizes s{1, p.c.shape[last - 1], p.c.shape[last], p.a.values.shape[last], 0, 0};
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

template <class T>
const std::array<float, 256>& wide_values() {  // all 256 numbers, widened
  static const auto all = [] {
    std::array<float, 256> values{};
    for (unsigned bits = 0; bits < 256; ++bits) values[bits] = widen(T{std::uint8_t(bits)});
    return values;
  }();
  return all;
}

// In FP32, stored in the order in which it was: by rows, or by columns.
Matrix widened(const Matrix& from, std::int64_t rows, std::int64_t columns, float* to) {
  const bool by_columns = from.row == 1 && from.column != 1;
  const std::int64_t lines = by_columns ? columns : rows, each = by_columns ? rows : columns;
  const std::int64_t line = by_columns ? from.column : from.row, one = by_columns ? from.row : from.column;
  const auto all = [&]<class T>(auto&& wide) {
    for (std::int64_t i = 0; i < lines; ++i) {
      const T* x = reinterpret_cast<const T*>(from.data) + i * line;
      for (std::int64_t j = 0; j < each; ++j) to[i * each + j] = wide(x[j * one]);
    }
  };
  const auto looked_up = [&]<class T>() { all.template operator()<T>([&values = wide_values<T>()](T x) { return values[x.bits]; }); };
  switch (from.dtype) {
    case DType::e4m3: looked_up.template operator()<e4m3>(); break;
    case DType::e5m2: looked_up.template operator()<e5m2>(); break;
    default: with_float(from.dtype, [&]<class T>() { all.template operator()<T>([](T x) { return widen(x); }); });
  }
  return {reinterpret_cast<std::byte*>(to), DType::f32, by_columns ? 1 : columns, by_columns ? rows : 1};
}

// Which tiles of FP32 a worker needs beside the operands' and the sums': of partial sums, and of operands with k fastest.
int tiles_of(const Product& p) { return p.adder == Adder::hopper ? 6 : p.sums == Sums::two_level ? 4 : 3; }

struct TileOfC {  // C's, and where it begins
  std::int64_t i, j, m, n;
};

void along_k_fastest(const Matrix& from, std::int64_t lines, std::int64_t k, std::int64_t line, std::int64_t step, float* to) {
  const auto* x = reinterpret_cast<const float*>(from.data);
  for (std::int64_t i = 0; i < lines; ++i)
    for (std::int64_t l = 0; l < k; ++l) to[i * k + l] = x[i * line + l * step];
}

constexpr int least_exponent(DType t) { return t == DType::e4m3 ? -6 : -14; }

void add_by_hopper(const Product& p, const Matrix& a, const Matrix& b, const TileOfC& t, std::int64_t depth, float* room, float* sums) {
  float *a_lines = room, *b_lines = room + panel * panel;
  along_k_fastest(a, t.m, depth, a.row, a.column, a_lines);
  along_k_fastest(b, t.n, depth, b.column, b.row, b_lines);
  const int least_a = least_exponent(p.a.values.dtype), least_b = least_exponent(p.b.values.dtype);
  for (std::int64_t i = 0; i < t.m; ++i)
    for (std::int64_t j = 0; j < t.n; ++j)
      for (std::int64_t l = 0; l < depth; l += hopper_depth)
        sums[i * t.n + j] = add_as_hopper(sums[i * t.n + j], a_lines + i * depth + l, b_lines + j * depth + l,
                                          std::min<std::int64_t>(hopper_depth, depth - l), least_a, least_b);
}

void multiply_small(const Sizes& s, const Product& p, Matrix a, Matrix b, Matrix c, const TileOfC& t, float* tiles) {
  float *wide_a = tiles, *wide_b = tiles + panel * panel, *sum = tiles + 2 * panel * panel, *partial = sum + panel * panel;
  const auto m = t.m, n = t.n;
  const bool two_level = p.sums == Sums::two_level, scaled_along_k = along_k(p.a.kind) || along_k(p.b.kind);
  const Matrix wide_c{reinterpret_cast<std::byte*>(two_level ? partial : sum), DType::f32, n, 1};
  const std::int64_t step = two_level ? scale_block : panel;
  std::array<float, panel> of_column{};
  std::fill_n(sum, m * n, 0.0f);
  for (std::int64_t k = 0; k < s.k; k += step) {
    const auto depth = std::min(step, s.k - k);
    const Matrix part_a = widened({a.at(0, k), a.dtype, a.row, a.column}, m, depth, wide_a),
                 part_b = widened({b.at(k, 0), b.dtype, b.row, b.column}, depth, n, wide_b);
    if (p.adder == Adder::hopper) {
      if (two_level) std::fill_n(partial, m * n, 0.0f);
      add_by_hopper(p, part_a, part_b, t, depth, tiles + 4 * panel * panel, reinterpret_cast<float*>(wide_c.data));
    } else {
      sgemm(m, n, depth, 1, part_a, part_b, two_level ? 0 : 1, wide_c);
    }
    if (!two_level) continue;
    if (scaled_along_k) {
      for (std::int64_t j = 0; j < n; ++j) of_column[std::size_t(j)] = p.b.scale_at(t.j + j, k);
      for (std::int64_t i = 0; i < m; ++i) {
        const float of_line = p.a.scale_at(t.i + i, k);
        for (std::int64_t j = 0; j < n; ++j) sum[i * n + j] += partial[i * n + j] * (of_line * of_column[std::size_t(j)]);
      }
    } else {
      for (std::int64_t at = 0; at < m * n; ++at) sum[at] += partial[at];
    }
  }
  const bool by_row = !scaled_along_k && (p.a.kind == ScaleKind::row || p.b.kind == ScaleKind::row);
  if (by_row)
    for (std::int64_t j = 0; j < n; ++j) of_column[std::size_t(j)] = p.b.scale_at(t.j + j, 0);
  with_float(c.dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < m; ++i) {
      const float of_line = by_row ? p.a.scale_at(t.i + i, 0) : 1;
      for (std::int64_t j = 0; j < n; ++j) {
        T& out = *reinterpret_cast<T*>(c.at(i, j));
        const float value = (by_row ? p.alpha * (of_line * of_column[std::size_t(j)]) : p.alpha) * sum[i * n + j];
        out = narrow<T>(p.beta == 0 ? value : value + p.beta * widen(out));
      }
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
  return double(p.c.shape[last - 1]) * double(p.c.shape[last]) * double(p.a.values.shape[last]) < 0x1p24 &&
         (spans(p.a.values) || spans(p.b.values) || spans(p.c));
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
  const bool one_scale = p.a.kind == ScaleKind::one && p.b.kind == ScaleKind::one;
  const bool small = p.a.values.dtype != DType::f32 || p.b.values.dtype != DType::f32 || p.c.dtype != DType::f32 || !one_scale ||
                     p.sums == Sums::two_level;
  const bool far = !small && spans_too_far(p);
  Tensor tiles;
  const std::int64_t of_a_worker = tiles_of(p) * panel * panel;
  if (small) tiles = ctx.arena.make("matmul.tiles", DType::f32, {ctx.workers(), of_a_worker});
  if (ctx.dry()) return;
  if (one_scale)
    for (const Tensor& scale : {p.a.scale, p.b.scale})
      if (scale) p.alpha *= *scale.as<float>();
  use_openblas(ctx.workers());
  const Sizes s = sizes_of(p, small);
  ctx.share(s.pieces(), [&](std::int64_t piece, int worker) {
    const auto index = piece / (s.tiles_m() * s.tiles_n()), tile = piece % (s.tiles_m() * s.tiles_n());
    const auto i = tile / s.tiles_n() * s.tile_m, j = tile % s.tiles_n() * s.tile_n;
    const auto m = std::min(s.tile_m, s.m - i), n = std::min(s.tile_n, s.n - j);
    Matrix a = matrix_of(p.a.values, index), b = matrix_of(p.b.values, index), c = matrix_of(p.c, index);
    a.data = a.at(i, 0);
    b.data = b.at(0, j);
    c.data = c.at(i, j);
    if (small)
      multiply_small(s, p, a, b, c, {i, j, m, n}, tiles.as<float>() + worker * of_a_worker);
    else if (far)
      multiply_far(s, p, a, b, c, m, n);
    else
      sgemm(m, n, s.k, p.alpha, a, b, p.beta, c);
  });
}

}  // namespace headroom::matmul
