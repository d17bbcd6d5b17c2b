// ALiBi (Press, Smith and Lewis, 2021): a score falls by slope · |position − key|, where each head has a slope.
// A row's position is the key that it is at, counted inside its document. By the mask's alignment, which a full mask has too, the last row is
// at the last key (bottom_right) or row i is at key i (top_left). Slopes have no gradient. The other gradients are as without, from the new P.
#pragma once
#include "ops/attention/documents/documents_args.h"

namespace headroom::attention {

struct Alibi {                         // one call's, as kernels receive it
  const float* slopes;                 // sets of [heads]; null: scores stay
  std::int32_t heads;                  // in a set
  std::int32_t of_batch, of_document;  // sets from one row of the batch, or document, to the next
  std::int32_t ahead;                  // row i is at key i + ahead; with documents each has its own
  DocumentsArgs packed;                // without documents its count is 0

  struct Spot {
    std::int32_t place;  // a row's: the key at its place; a key's: the row at its place. Either may not exist
    std::int32_t set;    // the set of slopes
  };
  HEADROOM_HD Spot of_row(std::int32_t batch, std::int32_t row) const {
    const Document d = document(packed.cu_q, batch, row);
    return {row + d.ahead, d.set};
  }
  HEADROOM_HD Spot of_key(std::int32_t batch, std::int32_t key) const {
    const Document d = document(packed.cu_k, batch, key);
    return {key - d.ahead, d.set};
  }
  HEADROOM_HD float slope(const Spot& spot, std::int32_t head) const {
    return slopes ? slopes[std::int64_t(spot.set) * heads + head] : 0.0f;
  }
  HEADROOM_HD float fall(std::int64_t batch, std::int64_t head, std::int64_t row, std::int64_t key) const {  // what is taken from one score
    if (!slopes) return 0;
    const Spot spot = of_row(std::int32_t(batch), std::int32_t(row));
    const std::int64_t apart = spot.place - key;
    return slope(spot, std::int32_t(head)) * float(apart < 0 ? -apart : apart);
  }

 private:
  struct Document {
    std::int32_t ahead, set;
  };
  HEADROOM_HD Document document(const std::int32_t* cu, std::int32_t batch, std::int32_t at) const {
    if (packed.count == 0) return {ahead, batch * of_batch};
    const DocumentsArgs::One d = packed.holding(cu, at, batch);
    return {d.k - d.q + (packed.from_the_end ? d.len_k - d.len_q : 0), batch * of_batch + (d.exists ? d.index * of_document : 0)};
  }
};

struct Problem;
struct Extras;
Alibi alibi_of(const Problem&, const Extras&);  // without slopes where the problem has none

}  // namespace headroom::attention
