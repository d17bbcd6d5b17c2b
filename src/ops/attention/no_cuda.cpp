// Stands in for the CUDA variants where the library is built without CUDA.
#include "ops/attention/fp8_impl.h"
#include "ops/attention/impl.h"
#include "ops/attention/sampled_rows.h"

namespace headroom::attention {

namespace {
const Support without_cuda = Support::no("this build has no CUDA");
[[noreturn]] void refuse() { throw Error(Code::unsupported, "attention: this build has no CUDA"); }
}  // namespace

Support decode_supports(const Problem&, const Device&, Pass) { return without_cuda; }
void decode_forward(const Problem&, const Forward&, Context&) { refuse(); }
void decode_backward(const Problem&, const Backward&, Context&) { refuse(); }
Support sm90_supports(const Problem&, const Device&, Pass) { return without_cuda; }
void sm90_forward(const Problem&, const Forward&, Context&) { refuse(); }
void sm90_backward(const Problem&, const Backward&, Context&) { refuse(); }
Support sm90_fp8_supports(const Problem&, const Device&, Pass) { return without_cuda; }
void sm90_fp8_forward(const Problem&, const Forward&, Context&) { refuse(); }
Support sm80_supports(const Problem&, const Device&, Pass) { return without_cuda; }
void sm80_forward(const Problem&, const Forward&, Context&) { refuse(); }
void sm80_backward(const Problem&, const Backward&, Context&) { refuse(); }
Support simt_supports(const Problem&, const Device&, Pass) { return without_cuda; }
void simt_forward(const Problem&, const Forward&, Context&) { refuse(); }
void simt_backward(const Problem&, const Backward&, Context&) { refuse(); }
Support plain_cuda_supports(const Problem&, const Device&, Pass) { return without_cuda; }
void plain_cuda_forward(const Problem&, const Forward&, Context&) { refuse(); }
void plain_cuda_backward(const Problem&, const Backward&, Context&) { refuse(); }
void to_fp8_cuda(const Problem&, const ToFp8&, const Tensor&, Context&) { refuse(); }
RowSums row_sums_on_gpu(const Problem&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, std::int64_t, std::int64_t,
                        const Place&) {
  refuse();
}

}  // namespace headroom::attention
