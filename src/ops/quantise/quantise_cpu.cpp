// A worker takes 128 rows, and of them 128 columns at a time: a tile holds whole runs and blocks of both copies. Scales that reach further
// come from maxima of all strips, taken before.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/quantise/quantise_cpu.cpp"
#include "ops/simd_targets.h"  // before anything of Highway

#include <hwy/foreach_target.h>  // this file again for every instruction set
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "ops/quantise/encode.h"
#include "ops/quantise/impl.h"

#ifndef HEADROOM_QUANTISE_CPU
#define HEADROOM_QUANTISE_CPU
namespace headroom::quantise {

constexpr std::int64_t side = scale_block;

struct Strip {  // a strip of rows
  std::int64_t first, rows;
};

struct Counts {
  std::int64_t clipped = 0, flushed = 0, nan = 0;
};

}  // namespace headroom::quantise
#endif

HWY_BEFORE_NAMESPACE();
namespace headroom::quantise {
namespace HWY_NAMESPACE {

struct Square {
  std::array<float, side * side> x;
  std::array<std::uint32_t, side> row_max, column_max;
  std::int64_t rows, columns;
};

void read(const Request& r, const Strip& s, std::int64_t column, Square& t) {
  t.rows = s.rows, t.columns = std::min(side, r.x.shape[1] - column);
  with_float(r.x.dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < t.rows; ++i) {
      const T* from = r.x.as<T>() + (s.first + i) * r.x.shape[1] + column;
      float* to = t.x.data() + i * side;
      if (r.of == Of::rmsnorm) {
        const float root = r.rstd.as<float>()[s.first + i], *weight = r.weight.as<float>() + column;
        for (std::int64_t j = 0; j < t.columns; ++j) to[j] = widen(narrow<T>(widen(from[j]) * root * weight[j]));
      } else {
        for (std::int64_t j = 0; j < t.columns; ++j) to[j] = widen(from[j]);
      }
    }
  });
  t.column_max.fill(0);
  for (std::int64_t i = 0; i < t.rows; ++i) {
    const float* x = t.x.data() + i * side;
    std::uint32_t largest = 0;
    for (std::int64_t j = 0; j < t.columns; ++j) {
      const std::uint32_t m = finite_magnitude(x[j]);
      largest = m > largest ? m : largest;
      t.column_max[std::size_t(j)] = m > t.column_max[std::size_t(j)] ? m : t.column_max[std::size_t(j)];
    }
    t.row_max[std::size_t(i)] = largest;
  }
}

std::uint32_t largest_of(const std::array<std::uint32_t, side>& maxima, std::int64_t n) {
  return n == 0 ? 0 : *std::max_element(maxima.begin(), maxima.begin() + n);
}

template <class T>
void encode_tile(const Square& t, const std::array<float, side>& of_row, const std::array<float, side>& of_column, std::uint8_t* to,
                 std::int64_t apart, Counts& counts) {
  std::int64_t clipped = 0, flushed = 0, nan = 0;
  for (std::int64_t i = 0; i < t.rows; ++i) {
    const float *x = t.x.data() + i * side, row = of_row[std::size_t(i)];
    int over = 0, under = 0, none = 0;
    for (std::int64_t j = 0; j < t.columns; ++j) {
      const Encoded c = encode<T>(x[j], row * of_column[std::size_t(j)]);  // one of the two is 1
      to[i * apart + j] = c.bits;
      over += c.clipped, under += c.flushed, none += c.nan;
    }
    clipped += over, flushed += under, nan += none;
  }
  counts.clipped += clipped, counts.flushed += flushed, counts.nan += nan;
}

void measure_strip(const Request& r, const Maxima& maxima, std::int64_t index, const Strip& s) {
  Square t;
  std::uint32_t largest = 0;
  for (std::int64_t column = 0; column < r.x.shape[1]; column += side) {
    read(r, s, column, t);
    largest = std::max(largest, largest_of(t.row_max, t.rows));
    if (maxima.columns)
      for (std::int64_t j = 0; j < t.columns; ++j)
        maxima.columns.as<float>()[index * r.x.shape[1] + column + j] = float_of(t.column_max[std::size_t(j)]);
  }
  if (maxima.strips) maxima.strips.as<float>()[index] = float_of(largest);
}

template <class T>
void write_as_is(const Request& r, const Strip& s, std::int64_t column, const Square& t, Counts& counts) {
  const Scaled& y = r.as_is;
  std::array<float, side> of_row{}, ones{};
  ones.fill(1);
  float* scale = y.scale.as<float>();
  const auto inverse = [](float x) { return 1.0f / x; };
  switch (y.kind) {
    case ScaleKind::one: of_row.fill(inverse(scale[0])); break;
    case ScaleKind::row:
      for (std::int64_t i = 0; i < t.rows; ++i) of_row[std::size_t(i)] = inverse(scale[s.first + i]);
      break;
    case ScaleKind::run:
      for (std::int64_t i = 0; i < t.rows; ++i) {
        const float one = scale_of<T>(t.row_max[std::size_t(i)]);
        scale[column / side * y.scale.stride[0] + s.first + i] = one, of_row[std::size_t(i)] = inverse(one);
      }
      break;
    case ScaleKind::block: {
      const float one = scale_of<T>(largest_of(t.row_max, t.rows));
      scale[s.first / side * y.scale.stride[0] + column / side] = one, of_row.fill(inverse(one));
    }
  }
  encode_tile<T>(t, of_row, ones, y.values.as<std::uint8_t>() + s.first * r.x.shape[1] + column, r.x.shape[1], counts);
}

template <class T>
void write_transposed(const Request& r, const Strip& s, std::int64_t column, const Square& t, Counts& counts) {
  const Scaled& y = r.transposed;
  std::array<float, side> of_column{}, ones{};
  ones.fill(1);
  float* scale = y.scale.as<float>();
  const auto inverse = [](float x) { return 1.0f / x; };
  switch (y.kind) {
    case ScaleKind::one: of_column.fill(inverse(scale[0])); break;
    case ScaleKind::row:
      for (std::int64_t j = 0; j < t.columns; ++j) of_column[std::size_t(j)] = inverse(scale[column + j]);
      break;
    case ScaleKind::run:
      for (std::int64_t j = 0; j < t.columns; ++j) {
        const float one = scale_of<T>(t.column_max[std::size_t(j)]);
        scale[s.first / side * y.scale.stride[0] + column + j] = one, of_column[std::size_t(j)] = inverse(one);
      }
      break;
    case ScaleKind::block: {
      const float one = scale_of<T>(largest_of(t.row_max, t.rows));
      scale[column / side * y.scale.stride[0] + s.first / side] = one, of_column.fill(inverse(one));
    }
  }
  std::array<std::uint8_t, side * side> codes;
  encode_tile<T>(t, ones, of_column, codes.data(), side, counts);
  const std::int64_t rows = r.x.shape[0];
  auto* to = y.values.as<std::uint8_t>() + column * rows + s.first;
  for (std::int64_t j = 0; j < t.columns; ++j)
    for (std::int64_t i = 0; i < t.rows; ++i) to[j * rows + i] = codes[std::size_t(i * side + j)];
}

// Scales a row that the as-is copy has: their rows end within the strip.
template <class T>
void scales_of_rows(const Request& r, const Strip& s) {
  std::array<std::uint32_t, side> largest{};
  Square t;
  for (std::int64_t column = 0; column < r.x.shape[1]; column += side) {
    read(r, s, column, t);
    for (std::int64_t i = 0; i < t.rows; ++i) largest[std::size_t(i)] = std::max(largest[std::size_t(i)], t.row_max[std::size_t(i)]);
  }
  for (std::int64_t i = 0; i < s.rows; ++i) r.as_is.scale.as<float>()[s.first + i] = scale_of<T>(largest[std::size_t(i)]);
}

template <class F>
void with_eight(DType t, F&& f) {
  t == DType::e4m3 ? f.template operator()<e4m3>() : f.template operator()<e5m2>();
}

Counts write_strip(const Request& r, const Strip& s) {
  Counts counts;
  if (r.as_is && r.as_is.kind == ScaleKind::row) with_eight(r.as_is.values.dtype, [&]<class T>() { scales_of_rows<T>(r, s); });
  Square t;
  for (std::int64_t column = 0; column < r.x.shape[1]; column += side) {
    read(r, s, column, t);
    if (r.as_is) with_eight(r.as_is.values.dtype, [&]<class T>() { write_as_is<T>(r, s, column, t, counts); });
    if (r.transposed) with_eight(r.transposed.values.dtype, [&]<class T>() { write_transposed<T>(r, s, column, t, counts); });
  }
  return counts;
}

}  // namespace HWY_NAMESPACE
}  // namespace headroom::quantise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::quantise {

HWY_EXPORT(measure_strip);
HWY_EXPORT(write_strip);

namespace {

float scale_for(DType t, float largest) { return t == DType::e4m3 ? scale_of<e4m3>(bits_of(largest)) : scale_of<e5m2>(bits_of(largest)); }

// Scales that reach over all strips, from their maxima.
void finish_maxima(const Request& r, const Maxima& maxima, std::int64_t strips) {
  if (maxima.strips) {
    float largest = 0;
    for (std::int64_t s = 0; s < strips; ++s) largest = std::max(largest, maxima.strips.as<float>()[s]);
    for (const Scaled& y : {r.as_is, r.transposed})
      if (y && y.kind == ScaleKind::one) *y.scale.as<float>() = scale_for(y.values.dtype, largest);
  }
  if (!maxima.columns) return;
  const std::int64_t columns = r.x.shape[1];
  for (std::int64_t j = 0; j < columns; ++j) {
    float largest = 0;
    for (std::int64_t s = 0; s < strips; ++s) largest = std::max(largest, maxima.columns.as<float>()[s * columns + j]);
    r.transposed.scale.as<float>()[j] = scale_for(r.transposed.values.dtype, largest);
  }
}

}  // namespace

void quantise_cpu(const Request& r, const Maxima& maxima, Context& ctx) {
  const std::int64_t rows = r.x.shape[0], strips = ceil_div(rows, side);
  const auto strip = [&](std::int64_t s) { return Strip{s * side, std::min(side, rows - s * side)}; };
  if (maxima.strips || maxima.columns) {
    ctx.share(strips, [&](std::int64_t s, int) { HWY_DYNAMIC_DISPATCH(measure_strip)(r, maxima, s, strip(s)); });
    finish_maxima(r, maxima, strips);
  }
  std::array<std::atomic<std::int64_t>, count_size> sums{};  // whole numbers: any order gives the same
  ctx.share(strips, [&](std::int64_t s, int) {
    const Counts c = HWY_DYNAMIC_DISPATCH(write_strip)(r, strip(s));
    sums[clipped] += c.clipped, sums[flushed] += c.flushed, sums[nan] += c.nan;
  });
  sums[numbers] = (int(bool(r.as_is)) + int(bool(r.transposed))) * r.x.count();
  if (r.counts)
    for (int i = 0; i < count_size; ++i) r.counts.as<std::int64_t>()[i] += sums[std::size_t(i)];
}

}  // namespace headroom::quantise
#endif
