// What packed documents and sinks need on a GPU beside the kernels of attention: lists of what each row sees, and dsink.
#include "gpu/launch.cuh"
#include "ops/attention/documents.h"
#include "ops/attention/on_stream.h"
#include "ops/attention/sink.h"

namespace headroom::attention {

namespace {

struct ListArgs {
  DocumentsArgs documents;
  int* zero;  // a counter to set back for the kernel behind; may be null
};

// attention_list_documents — a thread per position of either side.
//   reads  cu_q, cu_k (a binary search)     writes  8 bytes a position     limit  latency
__global__ void __launch_bounds__(256) attention_list_documents(const __grid_constant__ ListArgs args) {
  const DocumentsArgs& a = args.documents;
  if (args.zero && blockIdx.x == 0 && threadIdx.x == 0) *args.zero = 0;
  const long long at = blockIdx.x * 256ll + threadIdx.x, queries = (long long)a.batch * a.len_q, keys = (long long)a.batch * a.len_k;
  if (at < queries)
    a.keys_of[at] = a.keys_of_row(int(at / a.len_q), int(at % a.len_q));
  else if (at - queries < keys)
    a.rows_of[at - queries] = a.rows_of_key(int((at - queries) / a.len_k), int((at - queries) % a.len_k));
}

struct SinkArgs {
  const float *sink, *lse;
  SinkRows rows;
  float* dsink;
  int batch, heads, len_q;
};

// attention_dsink — a block per head: −Σ e^(sink − LSE) · Δ over its rows, in one order.
//   reads  LSE and Δ once     writes  a number a head     limit  latency
constexpr int sink_threads = 512;
__global__ void __launch_bounds__(sink_threads) attention_dsink(const __grid_constant__ SinkArgs a) {
  __shared__ float parts[sink_threads / 32];
  const int head = blockIdx.x;
  const float sink = a.sink[head];
  float sum = 0;
  for (int b = 0; b < a.batch; ++b) {
    const long long pair = (long long)b * a.heads + head;
    for (int row = threadIdx.x; row < a.len_q; row += sink_threads) {
      const int at = a.rows.in_sixteens ? (row & ~15) | (row & 6) << 1 | (row & 8) >> 2 | (row & 1) : row;
      sum -= share_of_sink(sink, a.lse[pair * a.len_q + row]) * a.rows.sign * a.rows.delta[pair * a.rows.padded + at];
    }
  }
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int w = 1; w < sink_threads / 32; ++w) sum += parts[w];
  a.dsink[head] = sum;
}

}  // namespace

void list_documents_on_gpu(const Problem& p, const Extras& with, const Lists& lists, Context& ctx, int* zero) {
  const std::int64_t positions = p.batch * (p.len_q + p.len_k);
  if (p.documents == 0 || positions == 0 || ctx.dry()) return;
  check(positions < (1ll << 39), Code::unsupported, "attention: {} packed positions are too many for one launch", positions);
  launch(cuda_stream(ctx.stream), attention_list_documents, {dim3(unsigned(ceil_div(positions, 256))), 256},
         {documents_args(p, with, lists), zero});
}

void sum_dsink_on_gpu(const Problem& p, const Tensor& sink, const Tensor& lse, const SinkRows& rows, const Tensor& dsink, Context& ctx) {
  if (ctx.dry()) return;
  const int len = rows.delta ? int(p.len_q) : 0;  // nothing to sum: 0
  launch(cuda_stream(ctx.stream), attention_dsink, {dim3(unsigned(p.heads)), sink_threads},
         {.sink = sink.as<float>(),
          .lse = lse.as<float>(),
          .rows = rows,
          .dsink = dsink.as<float>(),
          .batch = int(p.batch),
          .heads = int(p.heads),
          .len_q = len});
}

}  // namespace headroom::attention
