// Attention's kernels that are called from several places, as the program has them: nothing when run dry, else the library's.
#include "gpu/beside.h"
#include "ops/attention/documents/documents.h"
#include "ops/attention/impl.h"
#include "ops/attention/mend/mend.h"
#include "ops/attention/on_stream.h"
#include "ops/attention/sampled/sampled_rows.h"

namespace headroom::attention {

using beside::call;

void list_documents_on_gpu(const Problem& p, const Extras& with, const Lists& lists, Context& ctx, int* next_tile, const DocumentTiles& one,
                           const DocumentTiles& other) {
  if (!ctx.dry()) call<list_documents_on_gpu>(p, with, lists, ctx, next_tile, one, other);
}
void mend_forward_on_gpu(const Problem& p, const Forward& t, const Lists& lists, Context& ctx) {
  if (!ctx.dry()) call<mend_forward_on_gpu>(p, t, lists, ctx);
}
void mend_backward_on_gpu(const Problem& p, const Backward& t, const Lists& lists, Context& ctx) {
  if (!ctx.dry()) call<mend_backward_on_gpu>(p, t, lists, ctx);
}
void no_keys(const Problem& p, const Forward& t, Context& ctx) {
  if (!ctx.dry()) call<no_keys>(p, t, ctx);
}
void sum_dsink_on_gpu(const Problem& p, const Tensor& sink, const Tensor& lse, const SinkRows& rows, const Tensor& dsink, Context& ctx) {
  if (!ctx.dry()) call<sum_dsink_on_gpu>(p, sink, lse, rows, dsink, ctx);
}
RowSums row_sums_on_gpu(const Problem& p, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& d_o, std::int64_t batch,
                        std::int64_t head, const Place& place) {
  return call<row_sums_on_gpu>(p, q, k, v, d_o, batch, head, place);
}

}  // namespace headroom::attention
