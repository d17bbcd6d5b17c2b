// to_fp8 on a card: the largest number of each head, then its codes. A thread takes eight numbers of a row, or sixteen of a column of V.
#include "base/divide.h"
#include "gpu/launch.cuh"
#include "ops/attention/fp8/fp8_impl.h"
#include "ops/quantise/encode.h"

namespace headroom::attention {

namespace {

constexpr int fp8_threads = 256, fp8_own = 8, v_keys = int(keys_of_v_block);

template <class T>
struct Fp8Args {
  const T* x;
  std::int64_t batch_stride, row_stride, head_stride;
  int rows, dim, heads;
  std::uint32_t* largest;  // [batch, heads], FP32 bits
  std::uint8_t* codes;
  float* scale;
};

template <class T>
__device__ const T* head_at(const Fp8Args<T>& a) {
  return a.x + blockIdx.z * a.batch_stride + blockIdx.y * a.head_stride;
}

// A block's x: pieces of a head; y: the head; z: the row of the batch.
template <class T>
__global__ void __launch_bounds__(fp8_threads) attention_fp8_largest(const __grid_constant__ Fp8Args<T> a) {
  const T* const x = head_at(a);
  const int of_row = (a.dim + fp8_own - 1) / fp8_own;
  std::uint32_t most = 0;
  for (int piece = blockIdx.x * fp8_threads + threadIdx.x; piece < of_row * a.rows; piece += gridDim.x * fp8_threads) {
    const int row = piece / of_row, column = piece % of_row * fp8_own;
#pragma unroll
    for (int i = 0; i < fp8_own; ++i)
      if (column + i < a.dim) most = max(most, quantise::finite_magnitude(widen(x[row * a.row_stride + column + i])));
  }
  most = __reduce_max_sync(~0u, most);
  if (threadIdx.x % 32 == 0 && most != 0) atomicMax(a.largest + blockIdx.z * a.heads + blockIdx.y, most);
}

template <class T>
__device__ float inverse_scale(const Fp8Args<T>& a) {
  const int head = blockIdx.z * a.heads + blockIdx.y;
  const float scale = quantise::scale_of<e4m3>(a.largest[head]);
  if (blockIdx.x == 0 && threadIdx.x == 0) a.scale[head] = scale;
  return 1 / scale;
}

template <class T>
__global__ void __launch_bounds__(fp8_threads) attention_fp8_rows(const __grid_constant__ Fp8Args<T> a) {  // to [batch, rows, heads, dim]
  const T* const x = head_at(a);
  const float inverse = inverse_scale(a);
  const int of_row = (a.dim + fp8_own - 1) / fp8_own;
  for (int piece = blockIdx.x * fp8_threads + threadIdx.x; piece < of_row * a.rows; piece += gridDim.x * fp8_threads) {
    const int row = piece / of_row, column = piece % of_row * fp8_own;
    std::uint8_t* const to = a.codes + ((std::int64_t(blockIdx.z) * a.rows + row) * a.heads + blockIdx.y) * a.dim + column;
    std::uint8_t codes[fp8_own];
#pragma unroll
    for (int i = 0; i < fp8_own; ++i)
      codes[i] = column + i < a.dim ? quantise::encode<e4m3>(widen(x[row * a.row_stride + column + i]), inverse).bits : 0;
    if (a.dim % fp8_own == 0) {
      uint2 word;
      memcpy(&word, codes, sizeof word);
      *reinterpret_cast<uint2*>(to) = word;
    } else {
      for (int i = 0; i < fp8_own && column + i < a.dim; ++i) to[i] = codes[i];
    }
  }
}

template <class T>
__global__ void __launch_bounds__(fp8_threads) attention_fp8_values(const __grid_constant__ Fp8Args<T> a) {  // to blocks of 16 keys
  const T* const x = head_at(a);
  const float inverse = inverse_scale(a);
  const int blocks = (a.rows + v_keys - 1) / v_keys;
  std::uint8_t* const to = a.codes + (std::int64_t(blockIdx.z) * a.heads + blockIdx.y) * blocks * a.dim * v_keys;
  for (int piece = blockIdx.x * fp8_threads + threadIdx.x; piece < blocks * a.dim; piece += gridDim.x * fp8_threads) {
    const int block = piece / a.dim, d = piece % a.dim;
    std::uint8_t codes[v_keys];
#pragma unroll
    for (int place = 0; place < v_keys; ++place) {
      const int key = block * v_keys + key_at_place(place);
      codes[place] = key < a.rows ? quantise::encode<e4m3>(widen(x[key * a.row_stride + d]), inverse).bits : 0;
    }
    uint4 word;
    memcpy(&word, codes, sizeof word);
    reinterpret_cast<uint4*>(to)[piece] = word;
  }
}

}  // namespace

void to_fp8_cuda(const Problem& p, const ToFp8& t, const Tensor& maxima, Context& ctx) {
  const auto stream = cuda_stream(ctx.stream);
  cuda(cudaMemsetAsync(maxima.data, 0, maxima.bytes(), stream));
  std::uint32_t* largest = maxima.as<std::uint32_t>();
  const auto one = [&](const Tensor& x, const Tensor& x8, const Tensor& scale, bool values) {
    const std::int64_t heads = x.shape[2], rows = x.shape[1], dim = x.shape[3];
    std::uint32_t* const here = largest;
    largest += p.batch * heads;
    if (p.batch * heads == 0) return;
    check(heads < 65536 && p.batch < 65536 && rows * dim < (1ll << 31), Code::unsupported,
          "attention.to_fp8: {} rows of batch, {} heads of {} numbers are too many for a launch", p.batch, heads, rows * dim);
    with_float(x.dtype, [&]<class T>() {
      const Fp8Args<T> a{.x = x.as<T>(),
                         .batch_stride = x.stride[0],
                         .row_stride = x.stride[1],
                         .head_stride = x.stride[2],
                         .rows = int(rows),
                         .dim = int(dim),
                         .heads = int(heads),
                         .largest = here,
                         .codes = x8.as<std::uint8_t>(),
                         .scale = scale.as<float>()};
      const auto grid = [&](std::int64_t pieces) {
        const std::int64_t blocks = ceil_div(pieces, fp8_threads);
        return Grid{dim3(unsigned(blocks < 1 ? 1 : blocks > 1024 ? 1024 : blocks), unsigned(heads), unsigned(p.batch)), dim3(fp8_threads)};
      };
      const std::int64_t pieces = rows * ceil_div(dim, fp8_own);
      launch(stream, attention_fp8_largest<T>, grid(pieces), a);
      if (values)
        launch(stream, attention_fp8_values<T>, grid(ceil_div(rows, v_keys) * dim), a);
      else
        launch(stream, attention_fp8_rows<T>, grid(pieces), a);
    });
  };
  one(t.q, t.q8, t.q_scale, false);
  one(t.k, t.k8, t.k_scale, false);
  one(t.v, t.v8, t.v_scale, true);
}

}  // namespace headroom::attention
