// ALiBi (Press, Smith and Lewis, 2021): a score falls with the distance of its row and its key, slope · |position − key|, by a slope of each head.
// Positions are those of the mask: the last row is at the last key, or row i is at i; in a packed row they are counted in each document.
// Without a mask the last row is at the last key. The slopes are given, they have no gradient; those of the other tensors need nothing new but P.
#pragma once
#include "ops/attention/documents/documents_args.h"

namespace headroom::attention {

struct Alibi {            // one call's, as kernels receive it
  const float* slopes;    // [heads], or [batch, heads]; null: scores stay
  std::int32_t of_batch;  // slopes from one row of the batch to the next: 0, or heads
  std::int32_t ahead;     // row i is at key i + ahead; with documents each has its own
  DocumentsArgs packed;   // without documents its count is 0

  HEADROOM_HD float slope(std::int64_t batch, std::int64_t head) const { return slopes ? slopes[batch * of_batch + head] : 0.0f; }
  // The key that a row is at; and the row that is at a key. Either may be one that does not exist.
  HEADROOM_HD std::int32_t key_of(std::int32_t batch, std::int32_t row) const {
    return row + (packed.count ? own(packed.cu_q, row, batch) : ahead);
  }
  HEADROOM_HD std::int32_t row_of(std::int32_t batch, std::int32_t key) const {
    return key - (packed.count ? own(packed.cu_k, key, batch) : ahead);
  }
  HEADROOM_HD float fall(std::int64_t batch, std::int64_t head, std::int64_t row, std::int64_t key) const {  // of one score
    const std::int64_t apart = key_of(std::int32_t(batch), std::int32_t(row)) - key;
    return slopes ? slope(batch, head) * float(apart < 0 ? -apart : apart) : 0.0f;
  }

 private:
  HEADROOM_HD std::int32_t own(const std::int32_t* cu, std::int32_t at,
                               std::int32_t batch) const {  // `ahead` of the document that holds `at`
    const DocumentsArgs::One d = packed.holding(cu, at, batch);
    return d.k - d.q + (packed.from_the_end ? d.len_k - d.len_q : 0);
  }
};

struct Problem;
struct Extras;
Alibi alibi_of(const Problem&, const Extras&);  // without slopes where the problem has none

}  // namespace headroom::attention
