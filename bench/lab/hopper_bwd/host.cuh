// host.cuh — workspace, tensor maps and the three launches of the backward under study.
#pragma once
#include <cstdint>

#include "attention_bwd_sm90.cuh"
#include "attention_bwd_wide_sm90.cuh"

namespace ns::attention {

inline void cuda(cudaError_t e, int line = __builtin_LINE()) {
  if (e != cudaSuccess) std::printf("line %d: %s\n", line, cudaGetErrorString(e)), std::exit(2);
}

struct Problem {
  int batch, heads, kv_heads, len_q, len_k, dim;
  int least = -unbounded, most = unbounded;
  float scale = 0;  // 0: 1/sqrt(dim)
};

struct Tensors {  // 16-bit; each with its strides
  void *q, *k, *v, *o, *dout, *dq, *dk, *dv;
  Strides q_at, k_at, v_at, o_at, do_at, dq_at, dk_at, dv_at;
  const float *lse, *dlse;  // [batch, heads, len_q]
};

inline int up(int n, int to) { return (n + to - 1) / to * to; }

template <class C>
struct Workspace {
  std::size_t dq, lse2, delta, counters, bytes;
  int query_tiles, counter_count;
  Workspace(const Problem& p, bool ordered) {
    query_tiles = (p.len_q + C::rows - 1) / C::rows;
    const std::size_t pairs = std::size_t(p.batch) * p.heads, rows = pairs * query_tiles * C::rows;
    counter_count = 1 + (ordered ? int(pairs * query_tiles * 2) : 0);
    dq = 0, lse2 = dq + rows * C::dim * 4, delta = lse2 + rows * 4, counters = delta + rows * 4,
    bytes = counters + up(counter_count * 4, 256);
  }
};

template <class T>
Map map_of(void* data, const Strides& s, int batch, int len, int heads, int dim, int box_rows) {
  const auto u = [](long long x) { return std::uint64_t(x); };
  return make_map(static_cast<T*>(data), {.rank = 4,
                                          .dim = {u(dim), u(len), u(heads), u(batch)},
                                          .stride = {1, u(s.row), u(s.head), u(s.batch)},
                                          .box = {64, std::uint32_t(box_rows), 1, 1}});
}

enum Parts { before = 1, middle = 2, after = 4, whole = 7 };

template <class C, bool ordered>
void run(const Problem& p, const Tensors& t, char* workspace, cudaStream_t stream = 0, int parts = whole) {
  using T = typename C::T;
  static const int multiprocessors = [] {
    int n;
    cuda(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0));
    cuda(cudaFuncSetAttribute(attention_bwd_sm90<C, ordered>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared<C>)));
    return n;
  }();
  const Workspace<C> w(p, ordered);
  const float scale = p.scale ? p.scale : 1 / std::sqrt(float(p.dim));
  const Sight sight{p.len_q, p.len_k, p.len_k - p.len_q, p.least, p.most};
  const int padded = w.query_tiles * C::rows, pairs = p.batch * p.heads;
  float* dq = reinterpret_cast<float*>(workspace + w.dq);
  float *lse2 = reinterpret_cast<float*>(workspace + w.lse2), *delta = reinterpret_cast<float*>(workspace + w.delta);
  int* counters = reinterpret_cast<int*>(workspace + w.counters);
  if (parts & before) {
    const PreArgs pre{t.o,      t.dout,          t.o_at,  t.do_at, t.lse,   t.dlse, lse2, delta, ordered ? nullptr : dq,
                      counters, w.counter_count, p.len_q, padded,  p.heads, p.dim};
    attention_bwd_pre_sm90<T, C::dim><<<dim3((padded + 2048 / C::dim - 1) / (2048 / C::dim), pairs), 256, 0, stream>>>(pre);
  }
  if (parts & middle) {
    Args a{map_of<T>(t.q, t.q_at, p.batch, p.len_q, p.heads, p.dim, C::rows),
           map_of<T>(t.k, t.k_at, p.batch, p.len_k, p.kv_heads, p.dim, keys),
           map_of<T>(t.v, t.v_at, p.batch, p.len_k, p.kv_heads, p.dim, keys),
           map_of<T>(t.dout, t.do_at, p.batch, p.len_q, p.heads, p.dim, C::rows),
           lse2,
           delta,
           dq,
           t.dk,
           t.dv,
           t.dk_at,
           t.dv_at,
           counters,
           counters + 1,
           sight,
           p.batch,
           p.heads,
           p.kv_heads,
           p.dim,
           scale,
           scale * log2e};
    a.key_tiles = (p.len_k + keys - 1) / keys, a.query_tiles = w.query_tiles, a.tiles = a.key_tiles * p.batch * p.kv_heads;
    const long long pair_bytes = 8ll * p.len_q * C::dim * p.heads / p.kv_heads;  // Q, dO and dq
    const int kv_pairs = p.batch * p.kv_heads, fit = int(std::clamp<long long>((32ll << 20) / pair_bytes, 1, kv_pairs));
    const int sections = (kv_pairs + fit - 1) / fit;
    a.heads_at_once = (kv_pairs + sections - 1) / sections;
    int blocks = std::min(multiprocessors, a.tiles);
    if (ordered && p.least == 0 && p.most >= unbounded) {  // even and odd heads in pairs
      const int units = a.key_tiles * ((kv_pairs + 1) / 2);
      blocks = std::min(multiprocessors, units), a.tiles = (units + blocks - 1) / blocks * blocks * 2;
    }
    a.together = std::min(a.key_tiles, blocks);
    attention_bwd_sm90<C, ordered><<<blocks, 384, sizeof(Shared<C>), stream>>>(a);
  }
  if (parts & after) {
    const PostArgs post{dq, t.dq, t.dq_at, sight, p.heads, p.dim, w.query_tiles, scale};
    attention_bwd_post_sm90<C><<<dim3((p.len_q + 63) / 64, pairs), 128, 0, stream>>>(post);
  }
  cuda(cudaGetLastError());
}

struct WideWorkspace {
  std::size_t lse2, minus_delta, counters, bytes;
  int padded;
  explicit WideWorkspace(const Problem& p) {
    padded = up(p.len_q, 128);
    const std::size_t rows = std::size_t(p.batch) * p.heads * padded;
    lse2 = 0, minus_delta = rows * 4, counters = rows * 8, bytes = counters + 256;
  }
};

template <class C>
void run_wide(const Problem& p, const Tensors& t, char* workspace, cudaStream_t stream = 0, int parts = whole) {
  using T = typename C::T;
  static const int multiprocessors = [] {
    int n;
    cuda(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0));
    cuda(cudaFuncSetAttribute(attention_bwd_wide_dkdv_sm90<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(WideShared<C>)));
    cuda(cudaFuncSetAttribute(attention_bwd_wide_dq_sm90<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(WideQueryShared<C>)));
    return n;
  }();
  const WideWorkspace w(p);
  const float scale = p.scale ? p.scale : 1 / std::sqrt(float(p.dim));
  const Sight sight{p.len_q, p.len_k, p.len_k - p.len_q, p.least, p.most};
  float *lse2 = reinterpret_cast<float*>(workspace + w.lse2), *minus_delta = reinterpret_cast<float*>(workspace + w.minus_delta);
  int* counters = reinterpret_cast<int*>(workspace + w.counters);
  if (parts & before) {
    const PreArgs pre{t.o,     t.dout,   t.o_at, t.do_at, t.lse,    t.dlse,  lse2, minus_delta,
                      nullptr, counters, 2,      p.len_q, w.padded, p.heads, p.dim};
    attention_bwd_pre_sm90<T, C::dim><<<dim3((w.padded + 2048 / C::dim - 1) / (2048 / C::dim), p.batch * p.heads), 256, 0, stream>>>(pre);
  }
  const auto args = [&](int q_box, int k_box, int tile, int len, int pairs, int counter) {
    WideArgs a{map_of<T>(t.q, t.q_at, p.batch, p.len_q, p.heads, p.dim, q_box),
               map_of<T>(t.k, t.k_at, p.batch, p.len_k, p.kv_heads, p.dim, k_box),
               map_of<T>(t.v, t.v_at, p.batch, p.len_k, p.kv_heads, p.dim, k_box),
               map_of<T>(t.dout, t.do_at, p.batch, p.len_q, p.heads, p.dim, q_box),
               lse2,
               minus_delta,
               t.dq,
               t.dk,
               t.dv,
               t.dq_at,
               t.dk_at,
               t.dv_at,
               counters + counter,
               sight,
               p.batch,
               p.heads,
               p.kv_heads,
               p.dim,
               w.padded,
               scale,
               scale * log2e};
    a.tiles_per_head = (len + tile - 1) / tile, a.tiles = a.tiles_per_head * pairs;
    const long long pair_bytes = 4ll * std::max(p.len_q * (p.heads / p.kv_heads), p.len_k) * C::dim;
    const int fit = int(std::clamp<long long>((24ll << 20) / pair_bytes, 1, pairs)), sections = (pairs + fit - 1) / fit;
    a.heads_at_once = (pairs + sections - 1) / sections;
    return a;
  };
  if (parts & middle) {
    const WideArgs a = args(C::rows, C::keys, C::keys, p.len_k, p.batch * p.kv_heads, 0);
    attention_bwd_wide_dkdv_sm90<C><<<std::min(multiprocessors, a.tiles), 384, sizeof(WideShared<C>), stream>>>(a);
  }
  if (parts & after) {
    const WideArgs a = args(64, C::dq_keys, C::dq_rows, p.len_q, p.batch * p.heads, 1);
    attention_bwd_wide_dq_sm90<C><<<std::min(multiprocessors, a.tiles), 384, sizeof(WideQueryShared<C>), stream>>>(a);
  }
  cuda(cudaGetLastError());
}

}  // namespace ns::attention
