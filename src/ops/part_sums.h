// Sums over rows on the CPU. Threads sum the parts, each into its row of `sums`, FP32 [parts, width]; then the rows are added in order.
#pragma once
#include <algorithm>

#include "ops/gradient.h"
#include "ops/parts.h"

namespace headroom {

// f(sum, a part's first row, one behind its last) adds these rows to `sum`, which begins at 0.
template <class F>
void sum_parts(const Tensor& sums, const Parts& parts, std::int64_t rows, Context& ctx, F f) {
  const std::int64_t width = sums.shape[1];
  each_part(parts, rows, ctx, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
    float* sum = sums.as<float>() + part * width;
    std::fill_n(sum, width, 0.0f);
    f(sum, begin, end);
  });
}

inline void add_parts(const Tensor& sums, const Tensor& out, Gradient into, std::int64_t from = 0) {  // from: its first column of the sums
  const std::int64_t width = out.count();
  float* to = out.as<float>();
  if (into == Gradient::overwrite) std::fill_n(to, width, 0.0f);
  for (std::int64_t part = 0; part < sums.shape[0]; ++part)
    for (std::int64_t i = 0; i < width; ++i) to[i] += sums.as<float>()[part * sums.shape[1] + from + i];
}

}  // namespace headroom
