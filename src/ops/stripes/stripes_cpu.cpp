#include <algorithm>
#include <cstring>

#include "base/convert.h"
#include "ops/stripes/impl.h"

namespace headroom::stripes {

namespace {

constexpr std::int64_t rows_of_piece = 64;

template <class Body>
void each_row(std::int64_t rows, Context& ctx, Body&& body) {
  ctx.share((rows + rows_of_piece - 1) / rows_of_piece, [&](std::int64_t piece, int) {
    for (auto row = piece * rows_of_piece; row < std::min(rows, (piece + 1) * rows_of_piece); ++row) body(row);
  });
}

template <class T>
T* row_of(const Tensor& t, std::int64_t row) {
  return t.as<T>() + row * t.stride[0];
}
char* bytes_of_row(const Tensor& t, std::int64_t row) { return t.as<char>() + row * t.stride[0] * std::int64_t(size_of(t.dtype)); }
std::size_t row_bytes(const Tensor& t) { return std::size_t(t.shape[1]) * size_of(t.dtype); }

}  // namespace

void pack_cpu(const Tensor& from, const Tensor& to, Context& ctx) {
  each_row(to.shape[0], ctx, [&](std::int64_t row) { std::memcpy(bytes_of_row(to, row), bytes_of_row(from, row), row_bytes(to)); });
}

void in_order_cpu(const Stripes& s, const Tensor& by_rank, const Tensor& to, Context& ctx) {
  each_row(to.shape[0], ctx, [&](std::int64_t row) {
    std::memcpy(bytes_of_row(to, row), bytes_of_row(by_rank, s.by_rank(row / s.len(), row % s.len())), row_bytes(to));
  });
}

void add_by_rank_cpu(const Stripes& s, const Tensor& first, const Tensor& by_rank, Gradient how, Context& ctx) {
  const auto tokens = first.shape[0] / s.batch, width = first.shape[1];
  with_float(first.dtype, [&]<class T>() {
    each_row(s.batch * s.len(), ctx, [&](std::int64_t row) {
      const auto sequence = row / s.len(), token = row % s.len();
      float* const to = row_of<float>(by_rank, s.by_rank(sequence, token));
      if (token >= tokens) {
        if (how == Gradient::overwrite) std::fill_n(to, width, 0.0f);
        return;
      }
      const T* const from = row_of<T>(first, sequence * tokens + token);
      if (how == Gradient::overwrite)
        for (std::int64_t i = 0; i < width; ++i) to[i] = widen(from[i]);
      else
        for (std::int64_t i = 0; i < width; ++i) to[i] += widen(from[i]);
    });
  });
}

void add_up_cpu(const Tensor& parts, int count, const Tensor& to, Context& ctx) {
  const auto rows = to.shape[0], width = to.shape[1];
  with_float(to.dtype, [&]<class T>() {
    each_row(rows, ctx, [&](std::int64_t row) {
      T* const at = row_of<T>(to, row);
      for (std::int64_t i = 0; i < width; ++i) {
        float sum = row_of<float>(parts, row)[i];
        for (int part = 1; part < count; ++part) sum += row_of<float>(parts, part * rows + row)[i];
        at[i] = narrow<T>(sum);
      }
    });
  });
}

}  // namespace headroom::stripes
