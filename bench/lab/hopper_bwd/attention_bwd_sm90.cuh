// attention_bwd_sm90.cuh — exact attention backward on Hopper for head dims up to 64 and 128: preprocess, one main kernel, postprocess.
// A block owns 128 keys of one kv head and streams query tiles past them; dK and dV stay in registers, dQ is summed in global memory in fp32.
//   Sᵀ = K Qᵀ    P = exp(scale·S - LSE)    dPᵀ = V dOᵀ    dS = P ∘ (dP - Δ)    dV += Pᵀ dO    dK += dSᵀ Q    dQ += dS K
// Scores are kept transposed, so that Pᵀ and dSᵀ are already the register operand of dV and dK.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "mma.cuh"
#include "tma.cuh"

namespace ns::attention {

constexpr float log2e = 1.44269504f;

constexpr int unbounded = 1 << 29;

// Row i sees key j iff least <= i + shift - j <= most. Full: no bounds; causal: least = 0; window of w: and most = w - 1.
struct Sight {
  int len_q, len_k, shift, least, most;
  __host__ __device__ bool full() const { return least <= -unbounded && most >= unbounded; }
  __host__ __device__ int first_row(int key) const { return max_(0, key - shift + least); }
  __host__ __device__ int last_row(int key) const { return min_(len_q - 1, key - shift + most); }
  __host__ __device__ int first_key(int row) const { return max_(0, row + shift - most); }
  __host__ __device__ int last_key(int row) const { return min_(len_k - 1, row + shift - least); }
  static __host__ __device__ int max_(int a, int b) { return a > b ? a : b; }
  static __host__ __device__ int min_(int a, int b) { return a < b ? a : b; }
};

struct Strides {  // in elements; dimension head_dim is contiguous
  long long batch, row, head;
};

// Everything chosen at compile time. Two consumer warpgroups of 64 keys each; rows: queries of one step. The consumers take turns with their
// products, so that one's arithmetic runs beside the other's: once a step (scores), or twice.
template <class T_>
struct Bwd64 {
  using T = T_;
  static constexpr int dim = 64, rows = 128, stages = 2, turns = 1;
};
template <class T_>
struct Bwd128 {
  using T = T_;
  static constexpr int dim = 128, rows = 64, stages = 2, turns = 2;
};
constexpr int keys = 128;  // of one block

struct Args {
  Map q, k, v, dout;
  const float *lse, *minus_delta;  // [pairs, padded len_q, stat_at order]: LSE·log2e (+inf: the row sees nothing) and dLSE - rowsum(dO ∘ O)
  float* dq;                       // [pairs, query tiles, rows·dim] fp32, each half a tile in the order of the consumers' registers
  void *dk, *dv;
  Strides dk_strides, dv_strides;
  int* next_tile;  // zero at launch
  int* turns;      // ordered: [pairs, query tiles, 2], zero at launch
  Sight sight;
  int batch, heads, kv_heads, head_dim;
  float scale, scale_log2;
  int key_tiles, query_tiles, tiles;
  int heads_at_once;  // causal: this many (batch, kv head) pairs are swept together, longest key tiles first
  int together;       // ordered: this many key tiles of a head run at the same time, at most one per block
};

template <class C>
struct Shared {
  using T = typename C::T;
  T k[keys * C::dim], v[keys * C::dim];
  T q[C::stages][C::rows * C::dim], dout[C::stages][C::rows * C::dim];
  T ds[2][C::rows * keys];
  float dq[2][C::rows * C::dim / 2];
  float lse[C::stages][C::rows], minus_delta[C::stages][C::rows];
  Barrier k_full, k_empty, v_full, v_empty, q_full[C::stages], q_empty[C::stages], do_full[C::stages], do_empty[C::stages];
  Barrier ds_full[2], dq_full[2], dq_empty[2], tile_full[2], tile_empty[2];
  int tile[2];
};

// ---- which keys, which queries ----------------------------------------------------------------------------------------
struct Tile {
  int n, kv_head, batch;  // key tile; ordered causal: batch may lie past the end, there is nothing to do then
  int first, count;       // query tiles first … first+count-1 of each query head
  int start, stride;      // visited from first+start on, wrapping round
  bool backward;          // visited from the last one down
};

// Free order: one counter hands out tiles, longest first.
// Ordered: the key tiles of a head add to a query tile one after another, so they are laid side by side on the multiprocessors (tile number =
// block + k·blocks, fixed) and walk so that they come by in turn and nobody waits:
//   full     key tile n starts n steps in and wraps round
//   causal   in even heads key tile n starts at its diagonal; in odd heads it walks from the end back, and the block that had key tile i of the
//            even head takes the i-th longest's complement: every block has the same work
template <class C, bool ordered>
__device__ __forceinline__ Tile find_tile(const Args& a, int index) {
  const int pairs = a.batch * a.kv_heads;
  const bool causal = a.sight.least == 0 && a.sight.most >= unbounded;
  int n, pair;
  bool backward = false;
  if (ordered && causal) {
    const int wave = index / gridDim.x, unit = wave / 2 * gridDim.x + index % gridDim.x, i = unit % a.key_tiles;
    backward = wave % 2, n = backward ? a.key_tiles - 1 - i : i, pair = unit / a.key_tiles * 2 + backward;
  } else if (ordered || a.sight.full()) {
    n = index % a.key_tiles, pair = index / a.key_tiles;
  } else {
    const int section = index / (a.heads_at_once * a.key_tiles), first = section * a.heads_at_once;
    const int at_once = min(a.heads_at_once, pairs - first), at = index - first * a.key_tiles;
    n = at / at_once, pair = first + at % at_once;
  }
  const int low = a.sight.first_row(n * keys) / C::rows, last = a.sight.last_row(min(n * keys + keys, a.sight.len_k) - 1);
  int count = last < 0 || pair >= pairs ? 0 : max(0, last / C::rows + 1 - low), start = 0, stride = 0;
  if (ordered && a.sight.full())
    stride = count / min(a.together, a.key_tiles - n / a.together * a.together), start = n % a.together * stride;
  return {n, pair % a.kv_heads, pair / a.kv_heads, low, count, start, stride, backward};
}

// How many key tiles add to query tile m before this one does: the order in which they come by, made a rule. `together` key tiles run at once.
template <class C>
__device__ __forceinline__ int turn(const Args& a, const Tile& t, int m) {
  const int i = t.backward ? a.key_tiles - 1 - t.n : t.n, base = i / a.together * a.together, group = min(a.together, a.key_tiles - base);
  if (a.sight.full()) {
    if (t.stride == 0) return t.n;
    const int started = min(group, (m - t.first) / t.stride + 1);  // those that begin at or before m: the nearest one comes first
    return base + (t.start <= m - t.first ? started - 1 : started + group - 1) - (i - base);
  }
  const int low = a.sight.first_key(m * C::rows) / keys, high = a.sight.last_key(min(m * C::rows + C::rows, a.sight.len_q) - 1) / keys;
  if (t.backward) {
    const int top = a.key_tiles - 1 - base, bottom = top - group + 1;  // of this group; groups with larger n were before
    return max(0, high - top) + t.n - max(low, bottom);
  }
  return max(0, base - low) + min(high, base + group - 1) - t.n;
}

template <bool ordered>
struct Walk {  // over the steps of a tile: query heads, and the query tiles of each
  int head, i = 0, left;
  const Tile& t;
  __device__ __forceinline__ Walk(const Args& a, const Tile& tile) : t(tile) {
    const int group = a.heads / a.kv_heads;
    head = tile.kv_head * group, left = group * tile.count;
  }
  __device__ __forceinline__ bool more() const { return left > 0; }
  __device__ __forceinline__ int m() const {
    if (!ordered) return t.first + i;
    const int at = t.backward ? t.count - 1 - i : t.start + i;
    return t.first + (at >= t.count ? at - t.count : at);
  }
  __device__ __forceinline__ void next() {
    --left;
    if (++i == t.count) i = 0, ++head;
  }
};

// ---- the producer: one thread -------------------------------------------------------------------------------------------
template <class C, bool ordered>
__device__ __forceinline__ void produce(const Args& a, Shared<C>& s) {
  using T = typename C::T;
  Turn<C::stages> q, dout;
  Turn<2> next;
  int parity = 1;
  const int padded = a.query_tiles * C::rows;
  const auto load_rows = [](T* to, const Map& m, Barrier& full, int rows, int row, int head, int batch) {
    for (int p = 0; p < C::dim / 64; ++p)
      load(reinterpret_cast<char*>(to) + p * panel_bytes(rows), m, full, Keep::normal, p * 64, row, head, batch);
  };
  for (int index = blockIdx.x; index < a.tiles; parity ^= 1) {
    const Tile t = find_tile<C, ordered>(a, index);
    const int after = ordered ? 0 : atomicAdd(a.next_tile, 1);  // asked for early, used late
    const auto load_q = [&](const Walk<ordered>& w) {
      s.q_empty[q.stage].wait(q.parity ^ 1);
      s.q_full[q.stage].arrive_and_expect(sizeof s.q[0] + sizeof s.lse[0]);
      load_rows(s.q[q.stage], a.q, s.q_full[q.stage], C::rows, w.m() * C::rows, w.head, t.batch);
      load_run(s.lse[q.stage], a.lse + std::size_t(t.batch * a.heads + w.head) * padded + w.m() * C::rows, sizeof s.lse[0],
               s.q_full[q.stage]);
      q.next();
    };
    const auto load_do = [&](const Walk<ordered>& w) {
      s.do_empty[dout.stage].wait(dout.parity ^ 1);
      s.do_full[dout.stage].arrive_and_expect(sizeof s.dout[0] + sizeof s.minus_delta[0]);
      load_rows(s.dout[dout.stage], a.dout, s.do_full[dout.stage], C::rows, w.m() * C::rows, w.head, t.batch);
      load_run(s.minus_delta[dout.stage], a.minus_delta + std::size_t(t.batch * a.heads + w.head) * padded + w.m() * C::rows,
               sizeof s.minus_delta[0], s.do_full[dout.stage]);
      dout.next();
    };
    Walk<ordered> w(a, t);
    if (w.more()) {
      load_q(w);
      s.k_empty.wait(parity);
      s.k_full.arrive_and_expect(sizeof s.k);
      load_rows(s.k, a.k, s.k_full, keys, t.n * keys, t.kv_head, t.batch);
      load_do(w);
      s.v_empty.wait(parity);
      s.v_full.arrive_and_expect(sizeof s.v);
      load_rows(s.v, a.v, s.v_full, keys, t.n * keys, t.kv_head, t.batch);
      for (w.next(); w.more(); w.next()) load_q(w), load_do(w);
    } else {
      parity ^= 1;  // nothing is loaded for keys that no row sees
    }
    index = ordered ? index + gridDim.x : after + gridDim.x;
    s.tile_empty[next.stage].wait(next.parity ^ 1);
    s.tile[next.stage] = index;
    s.tile_full[next.stage].arrive();
    next.next();
  }
}

// ---- dQ's way out: one thread per consumer ------------------------------------------------------------------------------
__device__ __forceinline__ int read_acquire(const int* p) {
  int x;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}
__device__ __forceinline__ void add_release(int* p, int x) {
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}
__device__ __forceinline__ void proxy_fence_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

template <class C, bool ordered>
__device__ __forceinline__ void send_dq(const Args& a, Shared<C>& s, int group) {
  constexpr int half = C::rows * C::dim / 2;
  Turn<2> next;
  int parity = 0;
  for (int index = blockIdx.x; index < a.tiles;) {
    const Tile t = find_tile<C, ordered>(a, index);
    for (Walk<ordered> w(a, t); w.more(); w.next(), parity ^= 1) {
      const std::size_t at = std::size_t(t.batch * a.heads + w.head) * a.query_tiles + w.m();
      const int before = ordered ? turn<C>(a, t, w.m()) : 1;
      int* const counter = a.turns + at * 2 + group;
      if (ordered) {  // plain counters instead of acquire and release: 5–10 % faster at dim 128, and not repeatable (H200, 2026-11-21)
        while (read_acquire(counter) != before) {}
        proxy_fence_global();
      }
      s.dq_full[group].wait(parity);
      proxy_fence();  // for all that the consumer wrote: a fence anywhere on the way from writer to reader orders them, and here it stalls nobody
      if (before == 0)
        store_run(a.dq + (at * 2 + group) * half, s.dq[group], sizeof s.dq[0]);
      else
        add_to(a.dq + (at * 2 + group) * half, s.dq[group], sizeof s.dq[0]);
      store_commit();
      store_wait_read<0>();
      s.dq_empty[group].arrive();
      if (ordered) {
        store_wait<0>();
        proxy_fence_global();
        add_release(counter, 1);
      }
    }
    s.tile_full[next.stage].wait(next.parity);
    index = s.tile[next.stage];
    s.tile_empty[next.stage].arrive(), next.next();
  }
  store_wait<0>();
}

// ---- registers to rows in global memory -----------------------------------------------------------------------------------
// Lane c of each four holds words c of four 16-byte chunks; afterwards it holds all four words of chunk c.
__device__ __forceinline__ void transpose_four(std::uint32_t (&x)[4]) {
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t got = __shfl_xor_sync(~0u, odd ? x[i] : x[i + 1], 1);
    (odd ? x[i] : x[i + 1]) = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t got = __shfl_xor_sync(~0u, high ? x[i] : x[i + 2], 2);
    (high ? x[i] : x[i + 2]) = got;
  }
}

// An accumulator [64, n], times `factor`, to rows `row` (this thread's upper one) and row + 8 of a tensor.
template <class T, int n>
__device__ __forceinline__ void store_rows(const float (&d)[n], float factor, T* to, long long row_stride, int row, int rows, int column,
                                           int columns) {
#pragma unroll
  for (int j = 0; j < n / 4; j += 4)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      std::uint32_t x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = pack<T>(d[4 * (j + i) + 2 * r] * factor, d[4 * (j + i) + 2 * r + 1] * factor);
      transpose_four(x);
      const int at = column + 8 * (j + int(threadIdx.x % 4));
      if (row + 8 * r < rows && at < columns)
        *reinterpret_cast<uint4*>(to + (row + 8 * r) * row_stride + at) = make_uint4(x[0], x[1], x[2], x[3]);
    }
}

template <class T>
__device__ __forceinline__ float2 unpack(std::uint32_t x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return {__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u)};
  else
    return __half22float2(*reinterpret_cast<__half2*>(&x));
}

struct Plain {
  int from, to;
};  // query tiles from … to-1 see all of a key tile: no mask to apply
template <class C>
__device__ __forceinline__ Plain plain_tiles(const Sight& s, int n) {
  if (n * keys + keys > s.len_k) return {unbounded, 0};
  const int from = max(0, n * keys + keys - 1 - s.shift + s.least), to = n * keys - s.shift + s.most;  // rows from … to
  return {(from + C::rows - 1) / C::rows, to < 0 ? 0 : (to + 1) / C::rows};
}

// LSE and Δ of 16 rows are stored so that one thread's four lie side by side: rows 2c, 2c+1, 2c+8, 2c+9 at 4c.
__device__ __forceinline__ int stat_at(int row) { return (row & ~15) | (row & 6) << 1 | (row & 8) >> 2 | (row & 1); }
__device__ __forceinline__ float2 half_of(const float4& x, int half) { return half ? float2{x.z, x.w} : float2{x.x, x.y}; }

// ---- a consumer: one warpgroup, 64 keys -----------------------------------------------------------------------------------
template <class C, bool ordered>
__device__ __forceinline__ void consume(const Args& a, Shared<C>& s, int group) {
  using T = typename C::T;
  constexpr int dim = C::dim, rows = C::rows;
  constexpr int dq_n = rows * dim / 128;  // dQ: a group has 64 rows × dq_n columns of it
  group = __shfl_sync(~0u, group, 0);     // tells the compiler that it is the same for the whole warp
  const int thread = threadIdx.x % 128, lane = thread % 32;
  const int key_here = group * 64 + thread / 32 * 16 + lane / 4, column_here = lane % 4 * 2;
  const auto release = [&](Barrier& b) {
    if (lane == 0) b.arrive();
  };
  Descriptors words(&s);
  const auto offset = [&](const void* p) { return int(static_cast<const char*>(p) - reinterpret_cast<const char*>(&s)); };
  const int my_rows = group * 64 * 128;                                // of K and V
  const int ds_columns = rows == 128 ? group * panel_bytes(keys) : 0;  // dQ's share of a group: 64 query rows, or half the dims
  const int k_columns = rows == 128 ? 0 : dim == 128 ? group * panel_bytes(keys) : group * 64;
  constexpr int stage_bytes = sizeof s.q[0];

  constexpr int turn_barrier = 1;  // numbered barriers 1 and 2
  const auto my_turn = [&] { meet(turn_barrier + group, 256); };
  const auto pass_turn = [&] { arrive(turn_barrier + 1 - group, 256); };
  if (group == 0) arrive(turn_barrier, 256);
  const auto stage = [](int n) { return n % C::stages; };
  const auto parity = [](int n) { return n / C::stages % 2; };
  unsigned n = 0;  // steps behind us: all rings turn once a step
  Turn<2> next;
  int tile_parity = 0;
  for (int index = blockIdx.x; index < a.tiles;) {
    const Tile t = find_tile<C, ordered>(a, index);
    const Plain plain = plain_tiles<C>(a.sight, t.n);
    float dk[dim / 2] = {}, dv[dim / 2] = {}, scores[rows / 2], dp[rows / 2], dq[dq_n / 2];
    std::uint32_t p[rows / 16][4], ds[rows / 16][4];

    const auto stage_at = [&](const void* ring, unsigned n) { return offset(ring) + stage(n) * stage_bytes; };
    const auto dk_start = [&](unsigned n) {  // dK += dSᵀ Q
#pragma unroll
      for (auto& fragment : ds) pin(fragment);
      mma_fence();
#pragma unroll
      for (int i = 0; i < rows / 16; ++i) mma<T, Major::mn>(dk, ds[i], words.at(stage_at(s.q, n) + mn_offset(i), panel_bytes(rows)));
      mma_commit();
    };
    const auto dq_start = [&](unsigned n) {  // dQ = dS K, when both consumers have stored their part of dS
      s.ds_full[n % 2].wait(n / 2 % 2);
      proxy_fence();  // here and not behind the stores, where it would wait for them
      mma_fence();
#pragma unroll
      for (int i = 0; i < keys / 16; ++i)
        mma<T, Major::mn, Major::mn>(dq, words.at(offset(s.ds[n % 2]) + ds_columns + mn_offset(i)),
                                     words.at(offset(s.k) + k_columns + mn_offset(i), panel_bytes(keys)), i > 0);
      mma_commit();
    };
    const auto dq_out = [&](unsigned n) {
      pin(dq);
#pragma unroll
      for (int j = 0; j < dq_n / 8; ++j)
        *reinterpret_cast<float4*>(&s.dq[group][(j * 128 + thread) * 4]) =
            make_float4(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
      __syncwarp();
      release(s.dq_full[group]);
    };
    // One step. The step before has left dS: its dK and dQ run here, beside this step's scores, so that the consumers may drift apart and one's
    // arithmetic runs while the other's products do.
    const auto advance = [&](int m, auto later) {
      constexpr bool before = decltype(later)::value;
      words.renew();
      s.q_full[stage(n)].wait(parity(n));
      float4 lse_here[rows / 16];  // before the products are started: under them a load waits long for shared memory
#pragma unroll
      for (int i = 0; i < rows / 16; ++i) lse_here[i] = *reinterpret_cast<const float4*>(&s.lse[stage(n)][16 * i + 2 * column_here]);
      my_turn();
      if constexpr (before) dk_start(n - 1);
      mma_fence();
#pragma unroll
      for (int i = 0; i < dim / 16; ++i)  // Sᵀ = K Qᵀ
        mma<T>(scores, words.at(offset(s.k) + my_rows + k_offset(keys, i)), words.at(stage_at(s.q, n) + k_offset(rows, i)), i > 0);
      mma_commit();
      pass_turn();
      s.do_full[stage(n)].wait(parity(n));
      if constexpr (before) s.dq_empty[group].wait((n - 1) % 2 ^ 1);
#pragma unroll
      for (int i = 0; i < rows / 16; ++i) {  // dPᵀ starts at -Δ
        const float4 x = *reinterpret_cast<const float4*>(&s.minus_delta[stage(n)][16 * i + 2 * column_here]);
        dp[8 * i] = dp[8 * i + 2] = x.x, dp[8 * i + 1] = dp[8 * i + 3] = x.y, dp[8 * i + 4] = dp[8 * i + 6] = x.z,
               dp[8 * i + 5] = dp[8 * i + 7] = x.w;
      }
      mma_wait<0>();
      pin(scores);
      if constexpr (before) release(s.q_empty[stage(n - 1)]);

      if (m < plain.from || m >= plain.to) {  // some row of this step does not see some key of this tile
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int key = t.n * keys + key_here + 8 * r, at = m * rows + column_here;
          const int low = (key < a.sight.len_k ? key - a.sight.shift + a.sight.least : unbounded) - at,
                    high = key - a.sight.shift + a.sight.most - at;
#pragma unroll
          for (int j = 0; j < rows / 8; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e)
              if (8 * j + e < low || 8 * j + e > high) scores[4 * j + 2 * r + e] = -INFINITY;
        }
      }
#pragma unroll
      for (int j = 0; j < rows / 8; ++j) {
        const float2 lse = half_of(lse_here[j / 2], j % 2);
#pragma unroll
        for (int e = 0; e < 4; ++e) scores[4 * j + e] = exp2_fast(fmaf(scores[4 * j + e], a.scale_log2, -(e % 2 ? lse.y : lse.x)));
      }
#pragma unroll
      for (int i = 0; i < rows / 16; ++i)
#pragma unroll
        for (int f = 0; f < 4; ++f) p[i][f] = pack<T>(scores[8 * i + 2 * f], scores[8 * i + 2 * f + 1]);

      if (C::turns == 2) my_turn();
#pragma unroll
      for (auto& fragment : p) pin(fragment);
      mma_fence();
#pragma unroll
      for (int i = 0; i < rows / 16; ++i)
        mma<T, Major::mn>(dv, p[i], words.at(stage_at(s.dout, n) + mn_offset(i), panel_bytes(rows)));  // dV += Pᵀ dO
      mma_commit();
      if constexpr (before) dq_start(n - 1);
      pin(dp);
      mma_fence();
#pragma unroll
      for (int i = 0; i < dim / 16; ++i)  // dPᵀ += V dOᵀ
        mma<T>(dp, words.at(offset(s.v) + my_rows + k_offset(keys, i)), words.at(stage_at(s.dout, n) + k_offset(rows, i)));
      mma_commit();
      if (C::turns == 2) pass_turn();
      if constexpr (before) mma_wait<1>(), dq_out(n - 1);
      mma_wait<0>();
      pin(dp);

#pragma unroll
      for (int j = 0; j < rows / 8; ++j) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float2 w = unpack<T>(p[j / 2][j % 2 * 2 + half]);  // the rounded P: the scores' registers are free while the products run
          ds[j / 2][j % 2 * 2 + half] = pack<T>(w.x * dp[4 * j + 2 * half], w.y * dp[4 * j + 2 * half + 1]);
        }
      }
      char* ds_out = reinterpret_cast<char*>(s.ds[n % 2]);
#pragma unroll
      for (int i = 0; i < rows / 16; ++i)
        store_blocks(ds_out + i / 4 * panel_bytes(keys) + swizzled(group * 64 + thread / 32 * 16 + lane % 16, i % 4 * 2 + lane / 16),
                     ds[i][0], ds[i][1], ds[i][2], ds[i][3]);
      __syncwarp();
      release(s.ds_full[n % 2]);  // also says: this warp has waited for the dQ that read the other buffer
      release(s.do_empty[stage(n)]);
      ++n;  // nothing is in flight where the loop turns: ptxas would serialise every wgmma (C7514)
    };

    Walk<ordered> w(a, t);
    if (w.more()) {
      s.k_full.wait(tile_parity), s.v_full.wait(tile_parity);
      advance(w.m(), std::false_type{});
      for (w.next(); w.more(); w.next()) advance(w.m(), std::true_type{});
      words.renew();
      my_turn();
      dk_start(n - 1), dq_start(n - 1);
      pass_turn();
      mma_wait<0>();
      release(s.q_empty[stage(n - 1)]), release(s.v_empty), release(s.k_empty);
      s.dq_empty[group].wait((n - 1) % 2 ^ 1);
      dq_out(n - 1);
      tile_parity ^= 1;
    }
    pin(dk), pin(dv);
    const int row = t.n * keys + key_here, keys_left = t.batch < a.batch ? a.sight.len_k : 0;
    store_rows(dv, 1.f, static_cast<T*>(a.dv) + t.batch * a.dv_strides.batch + t.kv_head * a.dv_strides.head, a.dv_strides.row, row,
               keys_left, 0, a.head_dim);
    store_rows(dk, a.scale, static_cast<T*>(a.dk) + t.batch * a.dk_strides.batch + t.kv_head * a.dk_strides.head, a.dk_strides.row, row,
               keys_left, 0, a.head_dim);

    s.tile_full[next.stage].wait(next.parity);
    index = s.tile[next.stage];
    __syncwarp();  // every lane has read before lane 0 says so
    release(s.tile_empty[next.stage]), next.next();
  }
}

// attention_bwd_sm90 — dK, dV and the fp32 sum of dQ/scale
//   reads   Q, dO, LSE, Δ once per 128 keys; K, V once (through TMA)     writes  dK, dV; adds to dq (ordered: the first key tile stores)
//   needs   sm_90a, strides of 16 bytes, len_k >= 1, the preprocess before it in the stream
//   numerics  FP32 scores and sums, P and dS rounded to T as operands; dK, dV repeat bit for bit, dQ too if ordered
//   limit   shared memory bandwidth, then the tensor cores
template <class C, bool ordered>
__global__ void __launch_bounds__(384, 1) attention_bwd_sm90(const __grid_constant__ Args a) {
  extern __shared__ __align__(1024) char memory[];
  auto& s = *reinterpret_cast<Shared<C>*>(memory);
  if (threadIdx.x == 0) {
    s.k_full.init(1), s.k_empty.init(8), s.v_full.init(1), s.v_empty.init(8);  // empty: one arrival per consumer warp
    for (int i = 0; i < C::stages; ++i) s.q_full[i].init(1), s.q_empty[i].init(8), s.do_full[i].init(1), s.do_empty[i].init(8);
    for (int i = 0; i < 2; ++i)
      s.ds_full[i].init(8), s.dq_full[i].init(4), s.dq_empty[i].init(1), s.tile_full[i].init(1), s.tile_empty[i].init(8 + 2);
    barriers_ready();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    registers_down<24>();  // 24 + 2·240 = 504 = 3·168: all that 384 threads are launched with
    if (threadIdx.x == 0) produce<C, ordered>(a, s);
    if (threadIdx.x == 32 || threadIdx.x == 64) send_dq<C, ordered>(a, s, threadIdx.x / 32 - 1);
  } else {
    registers_up<240>();
    consume<C, ordered>(a, s, threadIdx.x / 128 - 1);
  }
}

// ---- before and after -------------------------------------------------------------------------------------------------
struct PreArgs {
  const void *o, *dout;
  Strides o_strides, do_strides;
  const float *lse, *dlse;         // [pairs, len_q]; dlse may be null
  float *lse2, *minus_delta, *dq;  // dq null: nothing to zero
  int* zeros;                      // counters to set back
  int zero_count;
  int len_q, padded, heads, head_dim;
};

// attention_bwd_pre_sm90 — Δ = rowsum(dO ∘ O) - dLSE, LSE·log2e, zeroed dq and counters.  A row is served by dim/8 lanes.
//   reads O, dO, LSE once; writes 8 bytes per row and 4·dim zeros     limit  memory bandwidth
template <class T, int dim>
__global__ void __launch_bounds__(256) attention_bwd_pre_sm90(const PreArgs a) {
  constexpr int lanes = dim / 8, rows = 256 / lanes;
  const int row = blockIdx.x * rows + threadIdx.x / lanes, lane = threadIdx.x % lanes, pair = blockIdx.y;
  const int batch = pair / a.heads, head = pair % a.heads;
  if (blockIdx.y == 0)
    for (int i = blockIdx.x * 256 + threadIdx.x; i < a.zero_count; i += gridDim.x * 256) a.zeros[i] = 0;
  float sum = 0;
  if (row < a.len_q && lane * 8 < a.head_dim) {
    const auto at = [&](const void* x, const Strides& s) {
      return *reinterpret_cast<const uint4*>(static_cast<const T*>(x) + batch * s.batch + row * s.row + head * s.head + lane * 8);
    };
    const uint4 o = at(a.o, a.o_strides), d = at(a.dout, a.do_strides);
    const std::uint32_t ow[4] = {o.x, o.y, o.z, o.w}, dw[4] = {d.x, d.y, d.z, d.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 x = unpack<T>(ow[i]), y = unpack<T>(dw[i]);
      sum += x.x * y.x + x.y * y.y;
    }
  }
#pragma unroll
  for (int i = lanes / 2; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
  if (row >= a.padded) return;
  if (lane == 0) {
    const std::size_t from = std::size_t(pair) * a.len_q + row, to = std::size_t(pair) * a.padded + stat_at(row);
    const float lse = row < a.len_q ? a.lse[from] : -INFINITY;
    const bool blind = lse == -INFINITY;  // sees no key: P must be 0
    a.lse2[to] = blind ? INFINITY : lse * log2e;
    a.minus_delta[to] = blind ? 0 : (a.dlse ? a.dlse[from] : 0) - sum;
  }
  if (a.dq) {
    float4* q = reinterpret_cast<float4*>(a.dq + (std::size_t(pair) * a.padded + row) * dim) + lane;
    q[0] = q[lanes] = make_float4(0, 0, 0, 0);
  }
}

struct PostArgs {
  const float* dq;
  void* out;
  Strides strides;
  Sight sight;
  int heads, head_dim, query_tiles;
  float scale;
};

// attention_bwd_post_sm90 — dQ = scale · dq, rounded and put in order. One block of 128 threads per 64 rows and pair.
template <class C>
__global__ void __launch_bounds__(128) attention_bwd_post_sm90(const PostArgs a) {
  using T = typename C::T;
  constexpr int dim = C::dim, rows = C::rows;
  const int pair = blockIdx.y, thread = threadIdx.x, row = blockIdx.x * 64 + thread / 32 * 16 + thread % 32 / 4;
  const int m = blockIdx.x * 64 / rows;
  const float* from = a.dq + (std::size_t(pair) * a.query_tiles * rows + blockIdx.x * 64) * dim;
  const bool seen = a.sight.last_key(min(m * rows + rows, a.sight.len_q) - 1) >= a.sight.first_key(m * rows);  // else no block wrote here
  T* to = static_cast<T*>(a.out) + pair / a.heads * a.strides.batch + pair % a.heads * a.strides.head;
#pragma unroll
  for (int c = 0; c < dim / 64; ++c) {
    float d[32];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float4 x = seen ? reinterpret_cast<const float4*>(from)[(c * 8 + j) * 128 + thread] : make_float4(0, 0, 0, 0);
      d[4 * j] = x.x, d[4 * j + 1] = x.y, d[4 * j + 2] = x.z, d[4 * j + 3] = x.w;
    }
    store_rows(d, a.scale, to, a.strides.row, row, a.sight.len_q, c * 64, a.head_dim);
  }
}

}  // namespace ns::attention
