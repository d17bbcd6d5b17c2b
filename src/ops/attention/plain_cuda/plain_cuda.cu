#include "ops/attention/plain_cuda/plain_cuda.h"

#include "base/convert.h"
#include "base/divide.h"
#include "gpu/launch.cuh"
#include "ops/attention/sink.h"

namespace headroom::attention::plain {

namespace {

constexpr int threads = 256;

struct Larger {
  __device__ static float join(float a, float b) { return fmaxf(a, b); }
};
struct Sum {
  __device__ static float join(float a, float b) { return a + b; }
};

// Joins x of all threads of the block in a fixed order. Each thread gets the result.
template <class How>
__device__ float together(float x) {
  __shared__ float warp[threads / 32];
  for (int step = 16; step; step /= 2) x = How::join(x, __shfl_xor_sync(~0u, x, step));
  __syncthreads();  // the last round's values have been read
  if (threadIdx.x % 32 == 0) warp[threadIdx.x / 32] = x;
  __syncthreads();
  x = warp[0];
  for (int w = 1; w < threads / 32; ++w) x = How::join(x, warp[w]);
  return x;
}

template <class T>
struct SoftmaxArgs {
  const float* s;
  T* p;
  float* lse;
  BandOf<int> band;
  const float* sink;  // [heads]; null: none
  int heads;
  float cap;  // 0: none
};

__device__ float capped(float s, float cap) { return cap == 0 ? s : cap * tanhf(s / cap); }

// The band of the row of the batch that query row `row` of [batch, heads, len_q] is in.
__device__ BandOf<int> band_at(BandOf<int> band, std::int64_t row, int heads) {
  if (band.reach != Reach::listed) return band;
  const std::int64_t batch = row / band.len_q / heads;
  band.keys_of += batch * band.len_q;
  band.rows_of += batch * band.len_k;
  return band;
}

// attention_plain_softmax — one block per row (batch, head, row).
//   reads   S twice or from L2     writes  P over all of len_k, LSE     numerics  FP32, fixed order     limit  bandwidth
template <class T>
__global__ void __launch_bounds__(threads) attention_plain_softmax(const __grid_constant__ SoftmaxArgs<T> a) {
  const std::int64_t row = blockIdx.x;
  const BandOf<int> band = band_at(a.band, row, a.heads);
  const int i = int(row % band.len_q), first = band.first(i), last = band.last(i);
  const float* s = a.s + row * a.band.len_k;
  T* p = a.p + row * a.band.len_k;
  float high = -INFINITY, sum = 0;
  for (int j = first + int(threadIdx.x); j < last; j += threads) high = fmaxf(high, capped(s[j], a.cap));
  high = together<Larger>(high);
  for (int j = first + int(threadIdx.x); j < last; j += threads) sum += expf(capped(s[j], a.cap) - high);
  sum = together<Sum>(sum);
  float inverse = 1 / sum, lse = first < last ? high + logf(sum) : -INFINITY;
  if (a.sink) {
    const Joined all = join_sink(high, first < last ? sum : 0.f, a.sink[row / band.len_q % a.heads]);
    inverse = all.weight;
    lse = all.lse;
  }
  for (int j = int(threadIdx.x); j < band.len_k; j += threads)
    p[j] = narrow<T>(j >= first && j < last ? expf(capped(s[j], a.cap) - high) * inverse : 0.f);
  if (threadIdx.x == 0) a.lse[row] = lse;
}

template <class T>
struct BackwardArgs {
  const T *p, *o, *d_o;
  const float *dp, *dlse, *s;  // s: the scores before they were capped; null: they were not
  T* ds;
  float* delta;  // kept for the sink's gradient; null: not needed
  float cap;
  std::int64_t len_q, len_k, heads, dim;
  std::int64_t o_batch, o_row, o_head, do_batch, do_row, do_head;
};

// attention_plain_softmax_backward — one block per row; dS may overwrite dP.
template <class T>
__global__ void __launch_bounds__(threads) attention_plain_softmax_backward(const __grid_constant__ BackwardArgs<T> a) {
  const std::int64_t row = blockIdx.x, i = row % a.len_q, head = row / a.len_q % a.heads, batch = row / a.len_q / a.heads;
  const T *o = a.o + batch * a.o_batch + i * a.o_row + head * a.o_head, *d_o = a.d_o + batch * a.do_batch + i * a.do_row + head * a.do_head;
  float delta = 0;
  for (std::int64_t d = threadIdx.x; d < a.dim; d += threads) delta += widen(o[d]) * widen(d_o[d]);
  delta = together<Sum>(delta) - (a.dlse ? a.dlse[row] : 0.f);
  if (a.delta && threadIdx.x == 0) a.delta[row] = delta;
  for (std::int64_t j = threadIdx.x; j < a.len_k; j += threads) {
    const float p = widen(a.p[row * a.len_k + j]);
    float ds = p == 0 ? 0.f : p * (a.dp[row * a.len_k + j] - delta);
    if (a.s && p != 0) {
      const float t = tanhf(a.s[row * a.len_k + j] / a.cap);
      ds *= (1 - t) * (1 + t);
    }
    a.ds[row * a.len_k + j] = narrow<T>(ds);
  }
}

template <class T>
struct StoreArgs {
  const float* from;
  T* to;
  std::int64_t count, len, heads, dim, batch_stride, row_stride, head_stride;
};

template <class T>
__global__ void __launch_bounds__(threads) attention_plain_store(const __grid_constant__ StoreArgs<T> a) {
  const std::int64_t i = std::int64_t(blockIdx.x) * threads + threadIdx.x;
  if (i >= a.count) return;
  const std::int64_t d = i % a.dim, head = i / a.dim % a.heads, row = i / a.dim / a.heads % a.len, batch = i / a.dim / a.heads / a.len;
  a.to[batch * a.batch_stride + row * a.row_stride + head * a.head_stride + d] = narrow<T>(a.from[i]);
}

unsigned blocks(std::int64_t n) {
  check(n < (1ll << 31), Code::unsupported, "plain_cuda: {} rows are too many for one launch", n);
  return unsigned(n);
}

}  // namespace

void softmax_rows(const Problem& p, const Band& band, const Tensor& s, const Tensor& probabilities, const Forward& t, cudaStream_t stream) {
  with_float(p.precision.dtype, [&]<class T>() {
    launch(stream, attention_plain_softmax<T>, {blocks(t.lse.count()), threads},
           {.s = s.as<float>(),
            .p = probabilities.as<T>(),
            .lse = t.lse.as<float>(),
            .band = in_32_bits(band),
            .sink = p.sink ? t.with.sink.as<float>() : nullptr,
            .heads = int(p.heads),
            .cap = p.softcap});
  });
}

void softmax_rows_backward(const Problem& p, const Backward& t, const Scores& scores, cudaStream_t stream) {
  with_float(p.precision.dtype, [&]<class T>() {
    launch(stream, attention_plain_softmax_backward<T>, {blocks(p.lse_shape().count()), threads},
           {.p = t.saved.p.as<T>(),
            .o = t.o.as<T>(),
            .d_o = t.d_o.as<T>(),
            .dp = scores.dp.as<float>(),
            .dlse = t.dlse ? t.dlse.as<float>() : nullptr,
            .s = scores.s ? scores.s.as<float>() : nullptr,
            .ds = scores.ds.as<T>(),
            .delta = scores.delta ? scores.delta.as<float>() : nullptr,
            .cap = p.softcap,
            .len_q = p.len_q,
            .len_k = p.len_k,
            .heads = p.heads,
            .dim = p.value_dim(),
            .o_batch = t.o.stride[0],
            .o_row = t.o.stride[1],
            .o_head = t.o.stride[2],
            .do_batch = t.d_o.stride[0],
            .do_row = t.d_o.stride[1],
            .do_head = t.d_o.stride[2]});
  });
}

void store_rounded(const Tensor& from, const Tensor& to, cudaStream_t stream) {
  if (to.count() == 0) return;
  with_float(to.dtype, [&]<class T>() {
    launch(stream, attention_plain_store<T>, {blocks(ceil_div(to.count(), threads)), threads},
           {.from = from.as<float>(),
            .to = to.as<T>(),
            .count = to.count(),
            .len = to.shape[1],
            .heads = to.shape[2],
            .dim = to.shape[3],
            .batch_stride = to.stride[0],
            .row_stride = to.stride[1],
            .head_stride = to.stride[2]});
  });
}

}  // namespace headroom::attention::plain
