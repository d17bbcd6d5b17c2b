#include <algorithm>

#include "base/divide.h"
#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "gpu/reduce.cuh"
#include "gpu/vec.cuh"
#include "ops/embedding/impl.h"

namespace headroom::embedding {

namespace {

constexpr int threads = 128, sum_threads = 256, sorting_threads = 1024;
constexpr std::int64_t most_words = 24 * 1024;  // counted at once: 96 KiB, which every card has

template <class From, class To>
struct ForwardArgs {
  const From* table;
  const int* tokens;
  To* x;
  int width;
  float scale;
};

// embedding_fwd — one block per row.     limit  bandwidth
template <int vec, class From, class To>
__global__ void __launch_bounds__(threads) embedding_fwd(const __grid_constant__ ForwardArgs<From, To> a) {
  const From* from = a.table + std::int64_t(a.tokens[blockIdx.x]) * a.width;
  To* to = a.x + std::int64_t(blockIdx.x) * a.width;
#pragma unroll 4
  for (int i = int(threadIdx.x) * vec; i < a.width; i += threads * vec) {
    const auto x = load<vec>(from + i);
    Pack<To, vec> y;
#pragma unroll
    for (int e = 0; e < vec; ++e) y.at[e] = rounded<To>(a.scale * widened(x.at[e]));
    store(to + i, y);
  }
}

// embedding_add — one block per row, x += its row of the table.     limit  bandwidth
template <class From, class To>
__global__ void __launch_bounds__(threads) embedding_add(const __grid_constant__ ForwardArgs<From, To> a) {
  const From* from = a.table + std::int64_t(a.tokens[blockIdx.x]) * a.width;
  To* to = a.x + std::int64_t(blockIdx.x) * a.width;
  for (int i = int(threadIdx.x); i < a.width; i += threads) to[i] = rounded<To>(widened(to[i]) + widened(from[i]));
}

struct SortArgs {
  const int* tokens;
  int *starts, *rows, *unordered;
  int count, vocab, words;  // words: that are counted at once
};

// embedding_bwd_sort — one block: counts rows per word, sums the counts, and puts each row among its word's rows in any order; for as many words of the
// vocabulary at a time as fit in shared memory.
__global__ void __launch_bounds__(sorting_threads) embedding_bwd_sort(const __grid_constant__ SortArgs a) {
  extern __shared__ int total[];  // each warp's
  int* counts = total + 32;       // how often each word from `low` on occurs; then where the next row of a word is put
  const int thread = int(threadIdx.x), lane = thread % 32, warp = thread / 32;
  int below = 0;  // rows of the words before `low`
  for (int low = 0; low < a.vocab; low += a.words) {
    const int words = min(a.words, a.vocab - low);
    const auto each_row = [&](auto&& f) {  // f(row, word) of the rows whose word is among these
#pragma unroll 4
      for (int row = thread; row < a.count; row += sorting_threads)
        if (const int word = __ldg(a.tokens + row) - low; word >= 0 && word < words) f(row, word);
    };
    for (int w = thread; w < words; w += sorting_threads) counts[w] = 0;
    __syncthreads();
    each_row([&](int, int word) { atomicAdd(&counts[word], 1); });
    __syncthreads();
    const int each = ceil_div(words, sorting_threads) | 1;  // odd: a warp's words are in different banks
    const int begin = min(words, thread * each), end = min(words, begin + each);
    int mine = 0;
    for (int w = begin; w < end; ++w) mine += counts[w];
    int before = mine;  // inclusive sum over the warp, then over the warps
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int lower = __shfl_up_sync(~0u, before, step);
      if (lane >= step) before += lower;
    }
    if (lane == 31) total[warp] = before;
    __syncthreads();
    int in_all = 0;
#pragma unroll
    for (int w = 0; w < 32; ++w) {
      const int of_warp = total[w];
      if (w < warp) before += of_warp;
      in_all += of_warp;
    }
    before += below - mine;
    for (int w = begin; w < end; ++w) {
      const int count = counts[w];
      counts[w] = before;
      before += count;
    }
    __syncthreads();
    for (int w = thread; w < words; w += sorting_threads) a.starts[low + w] = counts[w];
    below += in_all;
    __syncthreads();
    each_row([&](int row, int word) { a.unordered[atomicAdd(&counts[word], 1)] = row; });
    __syncthreads();
  }
  if (thread == 0) a.starts[a.vocab] = below;
}

// embedding_bwd_order — a thread per row: its place is the number of its word's rows that precede it. Atomics wrote them in any order;
// from here on the order is fixed.
__global__ void __launch_bounds__(threads) embedding_bwd_order(const __grid_constant__ SortArgs a) {
  const int row = int(blockIdx.x) * threads + int(threadIdx.x);
  if (row >= a.count) return;
  const int token = a.tokens[row], begin = a.starts[token], end = a.starts[token + 1];
  int before = 0;
#pragma unroll 4
  for (int k = begin; k < end; ++k) before += a.unordered[k] < row;
  a.rows[begin + before] = row;
}

template <class T>
struct SumArgs {
  const T* dx;
  float* dtable;
  const int *starts, *rows;
  int width;
  float scale;
  bool add;
};

// embedding_bwd_sum — one block per word of the vocabulary; a thread adds the rows of its columns in order.
//   reads  dx once, dtable when adding     writes  dtable; words that do not occur are cleared, or left alone when adding
//   numerics  FP32, rows in order     limit  bandwidth
template <class T, int vec>
__global__ void __launch_bounds__(sum_threads) embedding_bwd_sum(const __grid_constant__ SumArgs<T> a) {
  const int begin = a.starts[blockIdx.x], end = a.starts[blockIdx.x + 1];
  if (a.add && begin == end) return;
  float* out = a.dtable + std::int64_t(blockIdx.x) * a.width;
  for (int i = int(threadIdx.x) * vec; i < a.width; i += sum_threads * vec) {
    Pack<float, vec> sum{};
    if (a.add) sum = load<vec>(out + i);
#pragma unroll 8
    for (int k = begin; k < end; ++k) {
      const auto x = load<vec>(a.dx + std::int64_t(a.rows[k]) * a.width + i);
#pragma unroll
      for (int e = 0; e < vec; ++e) sum.at[e] = __fadd_rn(sum.at[e], __fmul_rn(a.scale, widened(x.at[e])));  // as on a CPU
    }
    store(out + i, sum);
  }
}

}  // namespace

void forward_cuda(const Tensor& table, const Tensor& tokens, const Tensor& x, float scale, Context& ctx) {
  const auto rows = x.shape[0], width = x.shape[1];
  if (x.count() == 0) return;
  with_float(table.dtype, [&]<class From>() {
    with_float(x.dtype, [&]<class To>() {
      const ForwardArgs<From, To> args{table.as<From>(), tokens.as<int>(), x.as<To>(), int(width), scale};
      const bool wide = pieces_of<float>(width, args.table, args.x) > 1;  // 16 bytes where they are FP32
      launch(cuda_stream(ctx.stream), wide ? embedding_fwd<4, From, To> : embedding_fwd<1, From, To>, {grid_of(rows), threads}, args);
    });
  });
}

void add_cuda(const Tensor& table, const Tensor& tokens, const Tensor& x, Context& ctx) {
  if (x.count() == 0) return;
  with_float(table.dtype, [&]<class From>() {
    with_float(x.dtype, [&]<class To>() {
      launch(cuda_stream(ctx.stream), embedding_add<From, To>, {grid_of(x.shape[0]), threads},
             {table.as<From>(), tokens.as<int>(), x.as<To>(), int(x.shape[1]), 1});
    });
  });
}

void backward_cuda(const Tensor& tokens, const Tensor& dx, const Tensor& dtable, Gradient into_dtable, float scale, const Sorted& sorted,
                   Context& ctx) {
  const auto stream = cuda_stream(ctx.stream);
  const auto rows = dx.shape[0], width = dx.shape[1], vocab = dtable.shape[0];
  if (dtable.count() == 0) return;
  check(rows < (1ll << 31), Code::unsupported, "embedding: {} rows; a GPU serves fewer than 2^31", rows);
  const SortArgs sort{.tokens = tokens.as<int>(),
                      .starts = sorted.starts.as<int>(),
                      .rows = sorted.rows.as<int>(),
                      .unordered = sorted.unordered.as<int>(),
                      .count = int(rows),
                      .vocab = int(vocab),
                      .words = int(std::min(vocab, most_words))};
  launch(stream, embedding_bwd_sort, {1, sorting_threads, std::size_t(32 + sort.words) * sizeof(int)}, sort);
  if (rows > 0) launch(stream, embedding_bwd_order, {grid_of(ceil_div(rows, threads)), threads}, sort);
  with_float(dx.dtype, [&]<class T>() {
    const SumArgs<T> args{.dx = dx.as<T>(),
                          .dtable = dtable.as<float>(),
                          .starts = sort.starts,
                          .rows = sort.rows,
                          .width = int(width),
                          .scale = scale,
                          .add = into_dtable == Gradient::accumulate};
    const bool wide = pieces_of<float>(width, args.dx, args.dtable) > 1;  // 16 bytes of the sums
    launch(stream, wide ? embedding_bwd_sum<T, 4> : embedding_bwd_sum<T, 1>, {grid_of(vocab), sum_threads}, args);
  });
}

}  // namespace headroom::embedding
