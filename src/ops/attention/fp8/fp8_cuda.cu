// to_fp8 on a card: the largest number of each head, then its codes. The second pass goes from the end to the beginning, because the cache still
// has the end. A thread takes packs of eight numbers of a row, or sixteen numbers of a column of V.
#include "base/divide.h"
#include "gpu/launch.cuh"
#include "gpu/vec.cuh"
#include "ops/attention/fp8/fp8_impl.h"
#include "ops/quantise/encode_two.cuh"

namespace headroom::attention {

namespace {

constexpr int fp8_threads = 256, fp8_own = 8, fp8_ahead = 4;  // ahead: packs that a thread has under way
constexpr int v_keys = int(keys_of_v_block);

template <class T>
struct Fp8Args {
  const T* x;
  std::int64_t batch_stride, row_stride, head_stride;
  int rows, dim, heads;
  std::uint32_t* largest;  // [batch, heads], FP32 bits
  std::uint8_t* codes;
  float* scale;
};

// A block's piece of a head, the head, and the row of the batch.
struct Part {
  unsigned piece, head, batch;
};
__device__ Part from_the_start() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
__device__ Part from_the_end() { return {gridDim.x - 1 - blockIdx.x, gridDim.y - 1 - blockIdx.y, gridDim.z - 1 - blockIdx.z}; }

template <class T>
__device__ const T* head_at(const Fp8Args<T>& a, const Part& part) {
  return a.x + part.batch * a.batch_stride + part.head * a.head_stride;
}

// A head's packs, row by row. whole: every pack is, and is aligned.
template <bool whole, class T>
class Packs {
 public:
  __device__ Packs(const Fp8Args<T>& a, const T* x) : a_(a), x_(x), of_row_(unsigned(ceil_div(a.dim, fp8_own))) {}
  __device__ unsigned count() const { return of_row_ * unsigned(a_.rows); }
  __device__ int row(unsigned i) const { return int(i / of_row_); }
  __device__ int column(unsigned i) const { return int(i % of_row_) * fp8_own; }

  __device__ Pack<T, fp8_own> at(unsigned i) const {  // zeros past the end
    Pack<T, fp8_own> pack{};
    if (i >= count()) return pack;
    const T* const from = x_ + row(i) * a_.row_stride + column(i);
    if constexpr (whole) {
      pack = load<fp8_own>(from);
    } else {
#pragma unroll
      for (int e = 0; e < fp8_own; ++e)
        if (column(i) + e < a_.dim) pack.at[e] = from[e];
    }
    return pack;
  }

  template <class Do>
  __device__ void each(unsigned piece, Do&& take) const {  // a block's pieces, several at once
    for (unsigned first = piece * fp8_threads * fp8_ahead + threadIdx.x; first < count(); first += gridDim.x * fp8_threads * fp8_ahead) {
      Pack<T, fp8_own> packs[fp8_ahead];
#pragma unroll
      for (int i = 0; i < fp8_ahead; ++i) packs[i] = at(first + i * fp8_threads);
#pragma unroll
      for (int i = 0; i < fp8_ahead; ++i) take(first + i * fp8_threads, widened(packs[i]));
    }
  }

 private:
  const Fp8Args<T>& a_;
  const T* x_;
  unsigned of_row_;
};

template <class T, bool whole>
__global__ void __launch_bounds__(fp8_threads) attention_fp8_largest(const __grid_constant__ Fp8Args<T> a) {
  __shared__ std::uint32_t of_warps[fp8_threads / 32];
  const Part part = from_the_start();
  std::uint32_t most = 0;
  Packs<whole, T>(a, head_at(a, part)).each(part.piece, [&](unsigned, const Pack<float, fp8_own>& x) {
#pragma unroll
    for (const float one : x.at) most = max(most, quantise::finite_magnitude(one));
  });
  of_warps[threadIdx.x / 32] = __reduce_max_sync(~0u, most);
  __syncthreads();
  if (threadIdx.x >= 32) return;
  most = __reduce_max_sync(~0u, threadIdx.x < fp8_threads / 32 ? of_warps[threadIdx.x] : 0);
  if (threadIdx.x == 0 && most != 0) atomicMax(a.largest + part.batch * a.heads + part.head, most);
}

template <class T>
__device__ float inverse_scale(const Fp8Args<T>& a, const Part& part) {
  const unsigned head = part.batch * a.heads + part.head;
  const float scale = quantise::scale_of<e4m3>(a.largest[head]);
  if (part.piece == 0 && threadIdx.x == 0) a.scale[head] = scale;
  return 1 / scale;
}

template <int n>
__device__ Pack<std::uint8_t, n> codes_of(const Pack<float, n>& x, float inverse) {
  Pack<std::uint8_t, n> codes;
  bool nan = false;
#pragma unroll
  for (int e = 0; e < n; e += 2) {
    nan |= x.at[e] != x.at[e] || x.at[e + 1] != x.at[e + 1];
    reinterpret_cast<std::uint16_t&>(codes.at[e]) = std::uint16_t(quantise::encode_two<e4m3>(x.at[e] * inverse, x.at[e + 1] * inverse));
  }
  if (nan) {
#pragma unroll
    for (int e = 0; e < n; ++e) codes.at[e] = quantise::encode<e4m3>(x.at[e], inverse).bits;
  }
  return codes;
}

template <class T, bool whole>
__global__ void __launch_bounds__(fp8_threads) attention_fp8_rows(const __grid_constant__ Fp8Args<T> a) {  // to [batch, rows, heads, dim]
  const Part part = from_the_end();
  const float inverse = inverse_scale(a, part);
  const Packs<whole, T> packs(a, head_at(a, part));
  packs.each(part.piece, [&](unsigned i, const Pack<float, fp8_own>& x) {
    if (i >= packs.count()) return;
    const auto codes = codes_of(x, inverse);
    const int column = packs.column(i);
    std::uint8_t* const to = a.codes + ((std::int64_t(part.batch) * a.rows + packs.row(i)) * a.heads + part.head) * a.dim + column;
    if (a.dim % fp8_own == 0) {
      store(to, codes);
    } else {
#pragma unroll
      for (int e = 0; e < fp8_own; ++e)
        if (column + e < a.dim) to[e] = codes.at[e];
    }
  });
}

template <class T>
__global__ void __launch_bounds__(fp8_threads) attention_fp8_values(const __grid_constant__ Fp8Args<T> a) {  // to blocks of 16 keys
  const Part part = from_the_end();
  const T* const x = head_at(a, part);
  const float inverse = inverse_scale(a, part);
  const unsigned blocks = unsigned(a.rows + v_keys - 1) / v_keys;
  std::uint8_t* const to = a.codes + (std::int64_t(part.batch) * a.heads + part.head) * blocks * a.dim * v_keys;
  for (unsigned i = part.piece * fp8_threads + threadIdx.x; i < blocks * a.dim; i += gridDim.x * fp8_threads) {
    const int block = int(i / a.dim), d = int(i % a.dim);
    Pack<float, v_keys> column;
#pragma unroll
    for (int place = 0; place < v_keys; ++place) {
      const int key = block * v_keys + key_at_place(place);
      column.at[place] = key < a.rows ? widened(x[key * a.row_stride + d]) : 0;
    }
    store(to + std::int64_t(i) * v_keys, codes_of(column, inverse));
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
      const auto grid = [&](std::int64_t threads) {
        const std::int64_t blocks = ceil_div(threads, fp8_threads);
        return Grid{dim3(unsigned(blocks < 1 ? 1 : blocks > 1024 ? 1024 : blocks), unsigned(heads), unsigned(p.batch)), dim3(fp8_threads)};
      };
      const auto of_packs = grid(ceil_div(rows * ceil_div(dim, fp8_own), fp8_ahead));
      const auto both = [&]<bool whole>() {
        launch(stream, attention_fp8_largest<T, whole>, of_packs, a);
        if (values)
          launch(stream, attention_fp8_values<T>, grid(ceil_div(rows, v_keys) * dim), a);
        else
          launch(stream, attention_fp8_rows<T, whole>, of_packs, a);
      };
      const std::int64_t apart = dim | x.stride[0] | x.stride[1] | x.stride[2];
      const bool whole = apart % fp8_own == 0 && reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
      whole ? both.template operator()<true>() : both.template operator()<false>();
    });
  };
  one(t.q, t.q8, t.q_scale, false);
  one(t.k, t.k8, t.k_scale, false);
  one(t.v, t.v8, t.v_scale, true);
}

}  // namespace headroom::attention
