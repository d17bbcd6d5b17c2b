// The implementations behind quantise.cpp, which has checked the arguments and allocated the scratch.
#pragma once
#include "ops/quantise/quantise.h"

namespace headroom::quantise {

inline bool has(const Scaled& y, ScaleKind kind) { return y && y.kind == kind; }

struct Maxima {    // FP32, of each strip of 128 rows; none where no scale reaches beyond a strip
  Tensor strips;   // [strips]
  Tensor columns;  // [strips, columns]
};

void quantise_cpu(const Request&, const Maxima&, Context&);

struct CardMaxima {  // how many numbers on a card: of the tensor, of rows, of columns, in this order; 0 where a tile of 128 × 128 knows
  std::int64_t all, rows, columns;
  std::int64_t count() const { return all + rows + columns; }
};
inline CardMaxima maxima_on_card(const Request& r) {
  return {has(r.as_is, ScaleKind::one) || has(r.transposed, ScaleKind::one), has(r.as_is, ScaleKind::row) ? r.rows() : 0,
          has(r.transposed, ScaleKind::row) ? r.columns() : 0};
}

// A row's maximum by the block that quantises it: no launch takes maxima before.
inline bool in_lines(const Request& r) {
  constexpr std::int64_t most_in_shared = 96 << 10;
  return r.of == Of::stored && !r.transposed && r.as_is.kind == ScaleKind::row && r.rows() % 16 == 0 && r.columns() % 16 == 0 &&
         r.columns() * std::int64_t(size_of(r.x.dtype)) <= most_in_shared;
}

// In libheadroom_cuda.so: called through beside::call.
void quantise_cuda(const Request&, const Tensor& maxima, Context&);
void dequantise_cuda(const Scaled& from, const Tensor& to, Context&);

void check_copy(const Scaled&, std::int64_t lines, std::int64_t k, const char* op, const char* which);

}  // namespace headroom::quantise
