// The kernels around attention's, in a build without CUDA: they count nothing when run dry, and refuse otherwise. The host sides of
// attention are compiled as with CUDA (no_kernels.h).
#include "gpu/byte_map.h"
#include "ops/attention/fp8_impl.h"
#include "ops/attention/impl.h"
#include "ops/attention/mend.h"
#include "ops/attention/no_kernels.h"
#include "ops/attention/on_stream.h"
#include "ops/attention/plain_cuda.h"
#include "ops/attention/sampled/sampled_rows.h"

namespace headroom {

void cuda_failed(cudaError_t, const char*, int) { attention::no_kernels(); }
Map make_map(const void*, MapType, const MapShape&) { attention::no_kernels(); }
Map make_byte_map(const void*, const MapShape&, BoxLayout) { attention::no_kernels(); }

}  // namespace headroom

namespace headroom::attention {

namespace {
void refuse_unless_dry(const Context& ctx) {
  if (!ctx.dry()) no_kernels();
}
}  // namespace

void list_documents_on_gpu(const Problem&, const Extras&, const Lists&, Context& ctx, int*, const DocumentTiles&, const DocumentTiles&) {
  refuse_unless_dry(ctx);
}
void mend_forward_on_gpu(const Problem&, const Forward&, const Lists&, Context& ctx) { refuse_unless_dry(ctx); }
void mend_backward_on_gpu(const Problem&, const Backward&, const Lists&, Context& ctx) { refuse_unless_dry(ctx); }
void no_keys(const Problem&, const Forward&, Context& ctx) { refuse_unless_dry(ctx); }
void sum_dsink_on_gpu(const Problem&, const Tensor&, const Tensor&, const SinkRows&, const Tensor&, Context& ctx) {
  refuse_unless_dry(ctx);
}
void to_fp8_cuda(const Problem&, const ToFp8&, const Tensor&, Context& ctx) { refuse_unless_dry(ctx); }
RowSums row_sums_on_gpu(const Problem&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, std::int64_t, std::int64_t,
                        const Place&) {
  no_kernels();
}

void plain::softmax_rows(const Problem&, const Band&, const Tensor&, const Tensor&, const Forward&, cudaStream_t) { no_kernels(); }
void plain::softmax_rows_backward(const Problem&, const Backward&, const Scores&, cudaStream_t) { no_kernels(); }
void plain::store_rounded(const Tensor&, const Tensor&, cudaStream_t) { no_kernels(); }
void sm90::backward::start_zero(const ZeroArgs&, int, int, int, cudaStream_t) { no_kernels(); }

}  // namespace headroom::attention
