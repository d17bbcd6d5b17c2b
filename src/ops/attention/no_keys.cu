// What attention gives when there is no key at all (len_k = 0): O = 0, LSE = −∞, or the sink.
#include "gpu/launch.cuh"
#include "ops/attention/impl.h"
#include "ops/attention/on_stream.h"

namespace headroom::attention {

namespace {

struct Args {
  void* o;
  float* lse;
  const float* sink;  // null: none
  int element_bytes;
  std::int64_t heads, len, dim, batch_stride, row_stride, head_stride;
};

__global__ void attention_no_keys(const __grid_constant__ Args a) {  // a block per (row, head, batch), in that order
  const std::int64_t row = blockIdx.x, head = blockIdx.y, batch = blockIdx.z;
  char* o = static_cast<char*>(a.o) + (batch * a.batch_stride + row * a.row_stride + head * a.head_stride) * a.element_bytes;
  for (std::int64_t i = threadIdx.x; i < a.dim * a.element_bytes; i += blockDim.x) o[i] = 0;
  if (threadIdx.x == 0) a.lse[(batch * a.heads + head) * a.len + row] = a.sink ? a.sink[head] : -INFINITY;
}

}  // namespace

void no_keys(const Problem& p, const Forward& t, Context& ctx) {
  if (ctx.dry()) return;
  launch(cuda_stream(ctx.stream), attention_no_keys, {dim3(unsigned(p.len_q), unsigned(p.heads), unsigned(p.batch)), 64},
         {.o = t.o.data,
          .lse = t.lse.as<float>(),
          .sink = p.sink ? t.with.sink.as<float>() : nullptr,
          .element_bytes = int(size_of(t.o.dtype)),
          .heads = p.heads,
          .len = p.len_q,
          .dim = p.value_dim(),
          .batch_stride = t.o.stride[0],
          .row_stride = t.o.stride[1],
          .head_stride = t.o.stride[2]});
}

}  // namespace headroom::attention
