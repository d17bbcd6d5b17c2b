#include "ops/attention/plain_cuda.h"

#include "base/convert.h"
#include "gpu/launch.cuh"

namespace headroom::attention::plain {

namespace {

constexpr int threads = 256;

struct Larger {
  __device__ static float join(float a, float b) { return fmaxf(a, b); }
};
struct Sum {
  __device__ static float join(float a, float b) { return a + b; }
};

// Of all threads of the block, the same result for each; fixed order.
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
  Band band;
};

// attention_plain_softmax — one block per row (batch, head, row).
//   reads   S twice or from L2     writes  P over all of len_k, LSE     numerics  FP32, fixed order     limit  bandwidth
template <class T>
__global__ void __launch_bounds__(threads) attention_plain_softmax(const __grid_constant__ SoftmaxArgs<T> a) {
  const std::int64_t row = blockIdx.x, i = row % a.band.len_q, first = a.band.first(i), last = a.band.last(i);
  const float* s = a.s + row * a.band.len_k;
  T* p = a.p + row * a.band.len_k;
  float high = -INFINITY, sum = 0;
  for (std::int64_t j = first + threadIdx.x; j < last; j += threads) high = fmaxf(high, s[j]);
  high = together<Larger>(high);
  for (std::int64_t j = first + threadIdx.x; j < last; j += threads) sum += expf(s[j] - high);
  sum = together<Sum>(sum);
  const float inverse = 1 / sum;
  for (std::int64_t j = threadIdx.x; j < a.band.len_k; j += threads)
    p[j] = narrow<T>(j >= first && j < last ? expf(s[j] - high) * inverse : 0.f);
  if (threadIdx.x == 0) a.lse[row] = first < last ? high + logf(sum) : -INFINITY;
}

template <class T>
struct BackwardArgs {
  const T *p, *o, *d_o;
  const float *dp, *dlse;
  T* ds;
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
  for (std::int64_t j = threadIdx.x; j < a.len_k; j += threads) {
    const float p = widen(a.p[row * a.len_k + j]);
    const float ds = p == 0 ? 0.f : p * (a.dp[row * a.len_k + j] - delta);
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

template <class F>
void with_served(DType t, F&& f) {
  if (t == DType::bf16)
    f.template operator()<bf16>();
  else if (t == DType::f16)
    f.template operator()<f16>();
  else
    f.template operator()<float>();
}

}  // namespace

void softmax_rows(const Problem& p, const Tensor& s, const Tensor& probabilities, const Tensor& lse, cudaStream_t stream) {
  with_served(p.precision.dtype, [&]<class T>() {
    launch(stream, attention_plain_softmax<T>, {blocks(lse.count()), threads},
           {s.as<float>(), probabilities.as<T>(), lse.as<float>(), p.band()});
  });
}

void softmax_rows_backward(const Problem& p, const Backward& t, const Tensor& dp, const Tensor& ds, cudaStream_t stream) {
  with_served(p.precision.dtype, [&]<class T>() {
    launch(stream, attention_plain_softmax_backward<T>, {blocks(p.lse_shape().count()), threads},
           {t.saved.p.as<T>(), t.o.as<T>(), t.d_o.as<T>(), dp.as<float>(), t.dlse ? t.dlse.as<float>() : nullptr, ds.as<T>(), p.len_q,
            p.len_k, p.heads, p.head_dim, t.o.stride[0], t.o.stride[1], t.o.stride[2], t.d_o.stride[0], t.d_o.stride[1], t.d_o.stride[2]});
  });
}

void store_rounded(const Tensor& from, const Tensor& to, cudaStream_t stream) {
  if (to.count() == 0) return;
  with_served(to.dtype, [&]<class T>() {
    launch(stream, attention_plain_store<T>, {blocks((to.count() + threads - 1) / threads), threads},
           {from.as<float>(), to.as<T>(), to.count(), to.shape[1], to.shape[2], to.shape[3], to.stride[0], to.stride[1], to.stride[2]});
  });
}

}  // namespace headroom::attention::plain
