#include "ops/attention/alibi.h"

#include "ops/attention/documents/documents.h"

namespace headroom::attention {

Alibi alibi_of(const Problem& p, const Extras& with) {
  Alibi a{};
  if (!p.alibi) return a;
  const int rank = with.alibi.shape.rank;
  const bool from_the_end = p.mask.align == Align::bottom_right;
  a.slopes = with.alibi.as<float>();
  a.heads = std::int32_t(p.heads);
  a.of_document = rank == 3;
  a.of_batch = rank == 3 ? std::int32_t(p.documents) : rank == 2;
  a.ahead = from_the_end ? std::int32_t(p.len_k - p.len_q) : 0;
  if (p.documents) a.packed = documents_args(p, with, {});
  a.packed.from_the_end = from_the_end;  // a full mask says nothing of it to documents
  return a;
}

}  // namespace headroom::attention
