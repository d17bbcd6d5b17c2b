// attention_fwd.cuh — the laboratory of the forward kernel: a plain reference, cases that hurt, and tables of variants
// taking turns. A lab program names its variants and calls laboratory().
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "ops/attention/flash_sm90_fwd.cuh"

namespace headroom::attention::lab {

using namespace sm90;

struct Case {
  int batch, heads, kv_heads, len_q, len_k, dim;
  Reach reach = Reach::all;
  int low = 0, high = 0, splits = 1, packed = 0;  // packed: q, k and v are slices of one tensor [batch, len, heads + 2·kv_heads, dim]
  float size = 1;
};

template <class T>
struct View {  // [batch, len, heads, dim], elements
  T* data;
  long long batch, row, head;
  __device__ float at(int b, int i, int h, int c) const { return float(data[b * batch + i * row + h * head + c]); }
};

template <class T>
__global__ void reference(View<T> q, View<T> k, View<T> v, Case p, float scale, float* o, float* lse) {
  extern __shared__ float score[];
  const int row = blockIdx.x, head = blockIdx.y, batch = blockIdx.z, kv_head = head / (p.heads / p.kv_heads);
  const int first = p.reach == Reach::window ? max(0, row + p.low) : 0,
            end = p.reach == Reach::all ? p.len_k : min(p.len_k, row + p.high + 1);
  for (int key = first + threadIdx.x; key < end; key += blockDim.x) {
    float sum = 0;
    for (int c = 0; c < p.dim; ++c) sum += q.at(batch, row, head, c) * k.at(batch, key, kv_head, c);
    score[key] = sum * scale;
  }
  __syncthreads();
  float high = -INFINITY, sum = 0;
  for (int key = first; key < end; ++key) high = fmaxf(high, score[key]);
  for (int key = first; key < end; ++key) sum += expf(score[key] - high);
  for (int c = threadIdx.x; c < p.dim; c += blockDim.x) {
    float out = 0;
    for (int key = first; key < end; ++key) out += expf(score[key] - high) * v.at(batch, key, kv_head, c);
    o[((std::size_t(batch) * p.len_q + row) * p.heads + head) * p.dim + c] = end > first ? out / sum : 0;
  }
  if (threadIdx.x == 0) lse[(std::size_t(batch) * p.heads + head) * p.len_q + row] = end > first ? high + logf(sum) : -INFINITY;
}

template <class T>
__global__ void randomise(T* x, std::size_t n, unsigned seed, float size) {
  for (std::size_t i = blockIdx.x * std::size_t(blockDim.x) + threadIdx.x; i < n; i += std::size_t(gridDim.x) * blockDim.x) {
    float sum = 0;  // four uniforms: bell-shaped, variance 1
    for (unsigned j = 0; j < 4; ++j) {
      unsigned h = (unsigned(i) * 4 + j) * 2654435761u ^ seed * 0x9e3779b9u;
      h = (h ^ h >> 16) * 0x85ebca6bu, h = (h ^ h >> 13) * 0xc2b2ae35u, h ^= h >> 16;
      sum += h * 0x1p-32f - 0.5f;
    }
    x[i] = T(sum * 1.7320508f * size);
  }
}

template <class T>
struct Buffers {
  View<T> q, k, v, o;
  float *lse, *partial_o, *partial_lse;
  int* counters;
  std::size_t o_count, rows;
  std::vector<void*> owned;
  static constexpr std::size_t guard = 4096;  // elements after O that nobody may touch
  template <class X>
  X* make(std::size_t n) {
    void* p;
    cuda(cudaMalloc(&p, n * sizeof(X))), owned.push_back(p);
    return static_cast<X*>(p);
  }
  explicit Buffers(const Case& p) {
    const long long d = p.dim, hq = p.heads, hk = p.kv_heads;
    if (p.packed) {
      const long long row = (hq + 2 * hk) * d;
      T* all = make<T>(p.batch * p.len_q * row);
      randomise<<<256, 256>>>(all, p.batch * p.len_q * row, 1, p.size);
      q = {all, p.len_q * row, row, d}, k = {all + hq * d, p.len_q * row, row, d}, v = {all + (hq + hk) * d, p.len_q * row, row, d};
    } else {
      const std::size_t nq = p.batch * p.len_q * hq * d, nk = p.batch * p.len_k * hk * d;
      q = {make<T>(nq), p.len_q * hq * d, hq * d, d}, k = {make<T>(nk), p.len_k * hk * d, hk * d, d},
      v = {make<T>(nk), p.len_k * hk * d, hk * d, d};
      randomise<<<256, 256>>>(q.data, nq, 1, p.size), randomise<<<256, 256>>>(k.data, nk, 2, 1), randomise<<<256, 256>>>(v.data, nk, 3, 1);
    }
    rows = std::size_t(p.batch) * hq * p.len_q, o_count = rows * d;
    o = {make<T>(o_count + guard), p.len_q * hq * d, hq * d, d};
    lse = make<float>(rows), counters = make<int>(1 << 20);
    const std::size_t padded = p.splits > 1 ? std::size_t(p.splits) * p.batch * hq * ((p.len_q + 255) / 256 * 256 + 256) : 1;
    partial_o = make<float>(padded * 256), partial_lse = make<float>(padded);
    cuda(cudaMemset(partial_o, 0xff, padded * 1024)), cuda(cudaMemset(partial_lse, 0xff, padded * 4));
    cuda(cudaMemset(counters, 0, 4 << 20));
    poison();
  }
  void poison() { cuda(cudaMemset(o.data, 0xff, (o_count + guard) * 2)), cuda(cudaMemset(lse, 0xff, rows * 4)); }  // 0xffff: NaN
  ~Buffers() {
    for (void* p : owned) cudaFree(p);
  }
};

template <class C>
void run(const ForwardArgs& a, Reach reach) {
  static const int multiprocessors = [] {
    int n;
    cuda(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0));
    return n;
  }();
  if (reach == Reach::all)
    start_forward<C, Reach::all>(a, multiprocessors, 0);
  else if (reach == Reach::causal)
    start_forward<C, Reach::causal>(a, multiprocessors, 0);
  else
    start_forward<C, Reach::window>(a, multiprocessors, 0);
}

template <class C>
ForwardArgs prepare(const Case& p, const Buffers<typename C::T>& b) {
  using T = typename C::T;
  const auto map = [&](const View<T>& x, int len, int heads, int box) {
    return make_map(x.data, {.rank = 4,
                             .dim = {std::uint64_t(p.dim), std::uint64_t(len), std::uint64_t(heads), std::uint64_t(p.batch)},
                             .stride = {1, std::uint64_t(x.row), std::uint64_t(x.head), std::uint64_t(x.batch)},
                             .box = {64, std::uint32_t(box), 1, 1}});
  };
  ForwardArgs a{map(b.q, p.len_q, p.heads, 64), map(b.k, p.len_k, p.kv_heads, C::keys), map(b.v, p.len_k, p.kv_heads, C::keys),
                map(b.o, p.len_q, p.heads, 64)};
  a.o_data = b.o.data, a.o_row = b.o.row, a.o_head = b.o.head, a.o_batch = b.o.batch;
  a.lse = b.lse, a.arrivals = b.counters, a.partial_o = b.partial_o, a.partial_lse = b.partial_lse;
  a.batch = p.batch, a.heads = p.heads, a.kv_heads = p.kv_heads, a.len_q = p.len_q, a.len_k = p.len_k, a.head_dim = p.dim;
  a.low = p.low, a.high = p.high, a.splits = p.splits;
  a.scale_log2 = 1.44269504f / std::sqrt(float(p.dim));
  a.row_tiles = (p.len_q + C::consumers * 64 - 1) / (C::consumers * 64);
  a.units = int(dealt_units(p.reach, p.splits, a.row_tiles, p.batch * p.heads));
  return a;
}

template <class C>
int check(const char* name, const Case& p) {
  using T = typename C::T;
  Buffers<T> b(p);
  float *o, *lse;
  cuda(cudaMalloc(&o, b.o_count * 4)), cuda(cudaMalloc(&lse, b.rows * 4));
  reference<<<dim3(p.len_q, p.heads, p.batch), 128, p.len_k * 4>>>(b.q, b.k, b.v, p, 1 / std::sqrt(float(p.dim)), o, lse);
  cuda(cudaDeviceSynchronize());
  const ForwardArgs a = prepare<C>(p, b);
  std::vector<T> mine(b.o_count + Buffers<T>::guard), again(b.o_count);
  std::vector<float> mine_lse(b.rows), right(b.o_count), right_lse(b.rows);
  run<C>(a, p.reach);
  cuda(cudaDeviceSynchronize());
  cuda(cudaMemcpy(mine.data(), b.o.data, mine.size() * 2, cudaMemcpyDeviceToHost));
  cuda(cudaMemcpy(mine_lse.data(), b.lse, b.rows * 4, cudaMemcpyDeviceToHost));
  bool same = true;
  for (int i = 0; i < 5; ++i) {
    b.poison();
    run<C>(a, p.reach);
    cuda(cudaDeviceSynchronize());
    cuda(cudaMemcpy(again.data(), b.o.data, again.size() * 2, cudaMemcpyDeviceToHost));
    same &= !std::memcmp(mine.data(), again.data(), again.size() * 2);
  }
  std::vector<int> left(a.row_tiles * p.batch * p.heads * C::consumers);
  cuda(cudaMemcpy(left.data(), b.counters, left.size() * 4, cudaMemcpyDeviceToHost));
  cuda(cudaMemcpy(right.data(), o, b.o_count * 4, cudaMemcpyDeviceToHost)),
      cuda(cudaMemcpy(right_lse.data(), lse, b.rows * 4, cudaMemcpyDeviceToHost));
  cudaFree(o), cudaFree(lse);
  double error = 0, norm = 0, worst = 0, worst_lse = 0;
  for (std::size_t i = 0; i < b.o_count; ++i) {
    const double e = double(float(mine[i])) - right[i];
    error += e * e, norm += double(right[i]) * right[i], worst = std::fabs(e) <= worst ? worst : std::fabs(e);
  }
  for (std::size_t i = 0; i < b.rows; ++i) {
    const double e = right_lse[i] == mine_lse[i] ? 0 : std::fabs(double(right_lse[i]) - mine_lse[i]);  // both may be -inf
    worst_lse = e <= worst_lse ? worst_lse : e;
  }
  bool guarded = true, zeroed = true;
  for (std::size_t i = b.o_count; i < mine.size(); ++i) guarded &= std::isnan(float(mine[i]));
  for (int x : left) zeroed &= x == 0;
  const double relative = norm > 0 ? std::sqrt(error / norm) : std::sqrt(error), budget = std::is_same_v<T, __half> ? 8e-4 : 4e-3;
  const bool ok = relative < budget && worst_lse < 1e-3 && guarded && same && zeroed;
  constexpr const char* masks[] = {"full", "causal", "window"};
  std::printf("%-4s %-12s dim %3d/%3d %-6s %+5d %+5d batch %d heads %d/%d len %5d x %5d splits %d  rel %.2e max %.1e lse %.1e%s%s%s\n",
              ok ? "ok" : "FAIL", name, p.dim, C::dim, masks[int(p.reach)], p.low, p.high, p.batch, p.heads, p.kv_heads, p.len_q, p.len_k,
              p.splits, relative, worst, worst_lse, guarded ? "" : " WROTE PAST O", same ? "" : " NOT REPEATABLE",
              zeroed ? "" : " COUNTERS");
  return !ok;
}

template <class C>
int check_all(const char* name) {
  int failed = 0;
  const int small = C::dim == 64 ? 8 : C::dim == 128 ? 80 : 160;
  for (Reach r : {Reach::all, Reach::causal, Reach::window}) {
    const auto one = [&](Case c) {  // window: 100 keys back, diagonal at the bottom right
      c.reach = r, c.high = c.len_k - c.len_q, c.low = c.high - 100;
      failed += c.splits > 1 ? check<Split<C>>(name, c) : check<C>(name, c);
    };
    const int d = C::dim;
    one({1, 1, 1, 64, 64, d}), one({1, 1, 1, 1, 1, d}), one({1, 2, 2, 256, 256, d}), one({2, 3, 3, 1000, 1000, d}),
        one({1, 4, 2, 129, 777, d});
    one({1, 4, 1, 777, 129, d}), one({2, 40, 8, 1024, 1024, d}), one({1, 2, 2, 513, 4095, d});
    one({.batch = 1, .heads = 2, .kv_heads = 2, .len_q = 700, .len_k = 900, .dim = d, .size = 20});  // scores of ±100
    one({2, 3, 3, 300, 500, small}), one({2, 3, 1, 333, 257, d - 8}), one({1, 1, 1, 3, 5, small});
    one({.batch = 2, .heads = 6, .kv_heads = 2, .len_q = 611, .len_k = 611, .dim = d, .packed = 1});
    for (int splits : {2, 3, 7}) {
      one({.batch = 1, .heads = 2, .kv_heads = 1, .len_q = 300, .len_k = 1100, .dim = d, .splits = splits});
      one({.batch = 1, .heads = 1, .kv_heads = 1, .len_q = 900, .len_k = 300, .dim = small, .splits = splits});
      one({.batch = 2, .heads = 1, .kv_heads = 1, .len_q = 1, .len_k = 2049, .dim = d, .splits = splits});
    }
  }
  for (Reach r : {Reach::causal, Reach::window})  // aligned at the top left
    failed += check<C>(name, {1, 2, 2, 500, 700, C::dim, r, -50, 0}) + check<C>(name, {1, 2, 2, 700, 500, C::dim, r, -50, 0});
  return failed;
}

// In each cell the variants take turns, so that a warming card slows all of them alike.
template <class T>
struct Named {
  const char* name;
  std::function<std::function<void()>(const Case&, const Buffers<T>&)> prepare;  // what is made once; the result launches
};
template <class C>
Named<typename C::T> named(const char* name) {
  return {name, [](const Case& p, const Buffers<typename C::T>& b) {
            const ForwardArgs a = prepare<C>(p, b);
            return [a, reach = p.reach] { run<C>(a, reach); };
          }};
}

template <class T>
void time_all(const std::vector<Case>& cells, const std::vector<Named<T>>& variants) {
  cudaEvent_t start, stop;
  cuda(cudaEventCreate(&start)), cuda(cudaEventCreate(&stop));
  for (const Case& p : cells) {
    Buffers<T> b(p);
    std::vector<std::vector<float>> ms(variants.size());
    for (int round = 0; round < 6; ++round)
      for (std::size_t i = 0; i < variants.size(); ++i) {
        const auto launch = variants[i].prepare(p, b);
        for (int j = 0; j < 5; ++j) {
          cuda(cudaEventRecord(start));
          launch();
          cuda(cudaEventRecord(stop)), cuda(cudaEventSynchronize(stop));
          float t;
          cuda(cudaEventElapsedTime(&t, start, stop));
          if (round && j) ms[i].push_back(t);
        }
      }
    std::printf("dim %3d %-6s len %5d x %5d batch %2d heads %2d splits %d ", p.dim, p.reach == Reach::all ? "full" : "causal", p.len_q,
                p.len_k, p.batch, p.heads, p.splits);
    for (std::size_t i = 0; i < variants.size(); ++i) {
      std::sort(ms[i].begin(), ms[i].end());
      const double t = ms[i][ms[i].size() / 2];
      std::printf("| %s %.4f ms %4.0f ", variants[i].name, t,
                  4.0 * p.batch * p.heads * p.len_q * p.len_k * p.dim / (p.reach == Reach::all ? 1 : 2) / t * 1e-9);
    }
    std::printf("\n");
  }
}

inline std::vector<Case> table(int dim, Reach reach) {  // 16 384 tokens, width 2048
  std::vector<Case> cells;
  for (int len = 512; len <= 16384; len *= 2) cells.push_back({16384 / len, 2048 / dim, 2048 / dim, len, len, dim, reach});
  return cells;
}

}  // namespace headroom::attention::lab
