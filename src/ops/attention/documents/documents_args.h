// Where documents lie that are packed into the rows of a batch, and what a position of one sees: in numbers that kernels are handed.
#pragma once
#include "ops/attention/mask.h"

namespace headroom::attention {

struct DocumentsArgs {
  const std::int32_t *cu_q, *cu_k;  // [batch, count + 1]
  std::int32_t count, len_q, len_k, batch;
  std::int32_t low, high;  // keys of a row, counted from its own position in its document
  bool from_the_end;       // the last query's position is the last key's
  Run *keys_of, *rows_of;  // [batch, len_q], [batch, len_k]

  static HEADROOM_HD std::int32_t between(std::int64_t x, std::int32_t end) { return x < 0 ? 0 : x > end ? end : std::int32_t(x); }

  struct One {  // a document, and whether there is one
    bool exists;
    std::int32_t q, len_q, k, len_k, index;
  };
  // The document whose part of `cu` holds `at`: the last that begins there or before, as long as it does not end before.
  HEADROOM_HD One holding(const std::int32_t* cu, std::int32_t at, std::int32_t row) const {
    const std::int32_t *q = cu_q + std::int64_t(row) * (count + 1), *k = cu_k + std::int64_t(row) * (count + 1);
    std::int32_t low_end = 0, high_end = count + 1;  // how many begin at `at` or before
    while (low_end < high_end) {
      const std::int32_t middle = (low_end + high_end) / 2;
      if (cu[std::int64_t(row) * (count + 1) + middle] <= at)
        low_end = middle + 1;
      else
        high_end = middle;
    }
    const std::int32_t d = low_end - 1;
    const auto in_q = [&](std::int32_t x) { return between(x, len_q); };
    const auto in_k = [&](std::int32_t x) { return between(x, len_k); };
    if (d < 0) return {false, 0, 0, 0, 0, 0};
    if (d == count) return {false, in_q(q[count]), 0, in_k(k[count]), 0, 0};
    const std::int32_t q0 = in_q(q[d]), k0 = in_k(k[d]), q1 = in_q(q[d + 1]), k1 = in_k(k[d + 1]);
    return {true, q0, q1 > q0 ? q1 - q0 : 0, k0, k1 > k0 ? k1 - k0 : 0, d};
  }
  HEADROOM_HD Run keys_of_row(std::int32_t row, std::int32_t i) const { return keys_in(holding(cu_q, i, row), i); }
  HEADROOM_HD Run rows_of_key(std::int32_t row, std::int32_t j) const { return rows_in(holding(cu_k, j, row), j); }
  HEADROOM_HD Run keys_in(const One& d, std::int32_t i) const {  // the keys that row i sees inside that document
    if (!d.exists) return {d.k, d.k};
    const std::int64_t position = i - d.q + (from_the_end ? d.len_k - d.len_q : 0);
    return {d.k + between(position + low, d.len_k), d.k + between(position + high + 1, d.len_k)};
  }
  HEADROOM_HD Run rows_in(const One& d, std::int32_t j) const {  // the rows that see key j inside that document
    if (!d.exists) return {d.q, d.q};
    const std::int64_t position = j - d.k - (from_the_end ? d.len_k - d.len_q : 0);
    return {d.q + between(position - high, d.len_q), d.q + between(position - low + 1, d.len_q)};
  }
};

}  // namespace headroom::attention
