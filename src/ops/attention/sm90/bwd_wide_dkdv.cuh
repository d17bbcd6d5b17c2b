// bwd_wide_dkdv.cuh — dK and dV of head dims up to 256: a block owns 64 keys of one kv head and streams query tiles past them.
// One consumer makes P and dV, the other dS and dK; P is all that passes between them.
#pragma once
#include "gpu/launch.cuh"
#include "ops/attention/sm90/bwd_wide.cuh"

namespace headroom::attention::sm90::backward {

// P on its way from one consumer to the other, eight values of a thread: in FP16 where T is BF16 (WideArgs::one), else whole, so that dS is rounded once.
template <class T>
struct HandedP {
  static constexpr int vectors = 2;
  static __device__ __forceinline__ void put(uint4 (*to)[128], int thread, const float* x) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      to[i][thread] = make_uint4(__float_as_uint(x[4 * i]), __float_as_uint(x[4 * i + 1]), __float_as_uint(x[4 * i + 2]),
                                 __float_as_uint(x[4 * i + 3]));
  }
  static __device__ __forceinline__ void take(float (&x)[8], const uint4 (*from)[128], int thread) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4 y = from[i][thread];
      x[4 * i] = __uint_as_float(y.x), x[4 * i + 1] = __uint_as_float(y.y), x[4 * i + 2] = __uint_as_float(y.z),
            x[4 * i + 3] = __uint_as_float(y.w);
    }
  }
};
template <>
struct HandedP<__nv_bfloat16> {
  static constexpr int vectors = 1;
  static __device__ __forceinline__ void put(uint4 (*to)[128], int thread, const float* x) {
    to[0][thread] = make_uint4(pack<__half>(x[0], x[1]), pack<__half>(x[2], x[3]), pack<__half>(x[4], x[5]), pack<__half>(x[6], x[7]));
  }
  static __device__ __forceinline__ void take(float (&x)[8], const uint4 (*from)[128], int thread) {
    const uint4 y = from[0][thread];
    const std::uint32_t words[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = unpack<__half>(words[i]);
      x[2 * i] = two.x, x[2 * i + 1] = two.y;
    }
  }
};

template <class C>
struct WideShared {
  using T = typename C::T;
  T k[C::keys * C::dim], v[C::keys * C::dim];
  T q[C::stages][C::rows * C::dim], dout[C::stages][C::rows * C::dim];
  uint4 p[2][C::rows / 16][HandedP<T>::vectors][128];  // Pᵀ in the order of the registers
  float lse[C::stages][C::rows], minus_delta[C::stages][C::rows];
  Barrier k_full, k_empty, v_full, v_empty, q_full[C::stages], q_empty[C::stages], do_full[C::stages], do_empty[C::stages], p_full[2],
      p_empty[2];
  Handover next;
};

struct WideTile {
  int key, key_end, kv_head, batch;        // keys from key_end on belong to others
  int pair;                                // its number in the range whose dS is kept; documents: among the tiles that rows see
  int first, count, plain_from, plain_to;  // query tiles of a head: all that see a key of this one, and those that see every one
  int start;                               // the walk begins here, and comes around
  __device__ __forceinline__ int after(int m) const { return m + 1 == first + count ? first : m + 1; }
};
template <class C>
__device__ __forceinline__ WideTile find_wide_tile(const WideArgs& a, const Next<C>& next) {
  if constexpr (Next<C>::listed) {
    const DocumentTile& t = next.dealt.tile;
    TileSpan all{};  // rows that see every key of it
    if (t.end - t.first == C::keys)
      all = band_in<C::reach>(a.band, next.dealt.batch).template row_tiles<C::reach>(t.first, C::keys, C::rows);
    int number = 0;
    if constexpr (C::keeps)
      if (t.steps > 0) number = a.kept_of_documents.tile_at[std::size_t(next.dealt.batch) * a.kept_of_documents.len_k + t.first];
    return {t.first, t.end, next.dealt.head, next.dealt.batch, number, t.from, t.steps, all.plain_begin, all.plain_end, t.from};
  }
  const Place at = place(a, next.index, C::keeps ? a.kept.pairs : a.batch * a.kv_heads, false);
  const int pair = C::keeps ? a.kept.first_pair + at.pair : at.pair;
  const TileSpan seen_by = band_in<C::reach>(a.band, pair / a.kv_heads).template row_tiles<C::reach>(at.tile * C::keys, C::keys, C::rows);
  return {at.tile * C::keys,
          a.band.len_k,
          pair % a.kv_heads,
          pair / a.kv_heads,
          at.pair,
          seen_by.begin,
          seen_by.end - seen_by.begin,
          seen_by.plain_begin,
          seen_by.plain_end,
          a.band.reach == Reach::all ? at.tile % (seen_by.end - seen_by.begin) : seen_by.begin};
}

// The query heads of a tile: all that share its keys, or those of the range.
struct Heads {
  int first, count;
};
template <class C>
__device__ __forceinline__ Heads heads_of(const WideArgs& a, const WideTile& t) {
  const int group = a.heads / a.kv_heads;
  if constexpr (C::keeps && C::reach == Reach::listed) {
    const QueryHeads in = heads_in_range(a);
    const int before = t.batch * a.heads, first = max(before + t.kv_head * group, in.first);
    return {first - before, min(before + (t.kv_head + 1) * group, in.end) - first};
  }
  if constexpr (C::keeps) return {t.kv_head * group + a.kept.first_head, a.kept.heads};
  return {t.kv_head * group, group};
}

// Whether the sums of a tile come from the range before, and go on in the next one.
struct Crosses {
  bool resumes, goes_on;
};
template <class C>
__device__ __forceinline__ Crosses crosses(const WideArgs& a, const WideTile& t) {
  if constexpr (C::reach != Reach::listed) return {a.kept.resumes, a.kept.goes_on};
  const int group = a.heads / a.kv_heads;
  const Heads here = heads_of<C>(a, t);
  return {t.count > 0 && here.first > t.kv_head * group, t.count > 0 && here.first + here.count < (t.kv_head + 1) * group};
}

// Sums between two ranges, a thread's own. Of documents, one kv head at most goes on in the next range: ranges use two places in turn.
template <class C>
__device__ __forceinline__ float4* unfinished(const WideArgs& a, const WideTile& t, bool of_dv, bool to_next) {
  constexpr int vectors = C::dim / 8 * 128;
  std::size_t tile = 0;
  if constexpr (C::reach == Reach::listed)
    tile = std::size_t((a.kept_of_documents.range + !to_next) % 2) * a.kept_of_documents.most + t.pair;
  else
    tile = std::size_t(t.pair * a.tiles_per_head + t.key / C::keys);
  return reinterpret_cast<float4*>(a.kept.unfinished) + (tile * 2 + of_dv) * vectors + threadIdx.x % 128;
}

template <class C>
__device__ __forceinline__ void produce_wide(const WideArgs& a, WideShared<C>& s) {
  using T = typename C::T;
  Turn<C::stages> ring;
  Turn<2> next;
  int parity = 1;
  for (Next<C> tile(a, a.kv_heads); tile.there();) {
    const WideTile t = find_wide_tile<C>(a, tile);
    const Heads heads = heads_of<C>(a, t);
    bool first = true;
    for (int head = heads.first; head < heads.first + heads.count; ++head)
      for (int i = 0, m = t.start; i < t.count; ++i, m = t.after(m), first = false) {
        const std::size_t stat = std::size_t(t.batch * a.heads + head) * a.padded + m * C::rows;
        s.q_empty[ring.stage].wait(ring.parity ^ 1);
        s.q_full[ring.stage].arrive_and_expect(sizeof s.q[0] + sizeof s.lse[0]);
        load_panels<T, C::dim>(s.q[ring.stage], a.q, s.q_full[ring.stage], C::rows, m * C::rows, head, t.batch);
        load_run(s.lse[ring.stage], a.lse + stat, sizeof s.lse[0], s.q_full[ring.stage]);
        if (first) {
          s.k_empty.wait(parity);
          s.k_full.arrive_and_expect(sizeof s.k);
          load_panels<T, C::dim>(s.k, a.k, s.k_full, C::keys, t.key, t.kv_head, t.batch);
        }
        s.do_empty[ring.stage].wait(ring.parity ^ 1);
        s.do_full[ring.stage].arrive_and_expect(sizeof s.dout[0] + sizeof s.minus_delta[0]);
        load_panels<T, C::dim>(s.dout[ring.stage], a.dout, s.do_full[ring.stage], C::rows, m * C::rows, head, t.batch);
        load_run(s.minus_delta[ring.stage], a.minus_delta + stat, sizeof s.minus_delta[0], s.do_full[ring.stage]);
        if (first) {
          s.v_empty.wait(parity);
          s.v_full.arrive_and_expect(sizeof s.v);
          load_panels<T, C::dim>(s.v, a.v, s.v_full, C::keys, t.key, t.kv_head, t.batch);
        }
        ring.next();
      }
    if (!first) parity ^= 1;
    tile.index = atomicAdd(a.next_tile, 1) + gridDim.x;  // late: see bwd_feed.cuh
    tile.look_up();
    s.next.give(next, tile.index, tile.listed ? &tile.dealt : nullptr);
  }
}

template <class C, bool scores_role>
__device__ __forceinline__ void consume_wide(const WideArgs& a, WideShared<C>& s, bool hold) {
  using T = typename C::T;
  constexpr int dim = C::dim, rows = C::rows, keys = C::keys, stage_bytes = sizeof s.q[0];
  const int thread = threadIdx.x % 128, lane = thread % 32, key_here = thread / 32 * 16 + lane / 4, column_here = lane % 4 * 2;
  const auto release = [&](Barrier& b) {  // what products have read; what lanes have read or written themselves, every lane says
    if (lane == 0) b.arrive();
  };
  Descriptors words(&s);
  const auto offset = [&](const void* p) { return int(static_cast<const char*>(p) - reinterpret_cast<const char*>(&s)); };
  const auto stage = [](unsigned n) { return int(n % C::stages); };
  const auto parity = [](unsigned n) { return int(n / C::stages % 2); };
  unsigned n = 0;
  Turn<2> next;
  int tile_parity = 0;
  for (Next<C> tile(a, a.kv_heads); tile.there();) {
    const WideTile t = find_wide_tile<C>(a, tile);
    float d[dim / 2] = {}, x[rows / 2];  // dV and Sᵀ, or dK and dPᵀ
    std::uint32_t w[rows / 16][4];       // Pᵀ, or dSᵀ
    int head = 0;                        // the query head among this tile's
    if constexpr (C::keeps)
      if (crosses<C>(a, t).resumes) {
        const float4* from = unfinished<C>(a, t, scores_role, false);
#pragma unroll
        for (int i = 0; i < dim / 8; ++i) {
          const float4 y = from[i * 128];
          d[4 * i] = y.x, d[4 * i + 1] = y.y, d[4 * i + 2] = y.z, d[4 * i + 3] = y.w;
        }
      }

    const auto start = [&](unsigned n) {  // Sᵀ = K Qᵀ, or dPᵀ = -Δ + V dOᵀ
      if constexpr (scores_role) {
        s.q_full[stage(n)].wait(parity(n));
      } else {
        s.do_full[stage(n)].wait(parity(n));
        begin_at(x, &s.minus_delta[stage(n)][2 * column_here]);
        pin(x);
      }
      mma_fence();
#pragma unroll
      for (int i = 0; i < dim / 16; ++i)
        mma<T>(x, words.at(offset(scores_role ? s.k : s.v) + k_offset(keys, i)),
               words.at(offset(scores_role ? s.q : s.dout) + stage(n) * stage_bytes + k_offset(rows, i)), !scores_role || i > 0);
      mma_commit();
    };
    const auto weights = [&](int m) {  // P = exp2(S·c - LSE), handed to the other consumer
      float4 lse[rows / 16];
#pragma unroll
      for (int i = 0; i < rows / 16; ++i) lse[i] = *reinterpret_cast<const float4*>(&s.lse[stage(n)][16 * i + 2 * column_here]);
      if constexpr (C::capped) cap<true>(x, a.capping);
      if (m < t.plain_from || m >= t.plain_to)
        hide_unseen<C::reach, C::capped>(x, a.band, t.batch, t.key + key_here, t.key_end, m * rows + column_here);
      if constexpr (C::capped) {
        weigh_capped<T>(w, x, a.scale_log2, lse, hold, a.one, [&](int i, float y, float z) { x[i] = y, x[i + 1] = z; });
      } else {
        weigh(x, a.scale_log2, lse);
        hold_to_one(x, hold, a.one);
#pragma unroll
        for (int i = 0; i < rows / 16; ++i)
#pragma unroll
          for (int f = 0; f < 4; ++f) w[i][f] = pack<T>(x[8 * i + 2 * f], x[8 * i + 2 * f + 1]);
      }
      s.p_empty[n % 2].wait(n / 2 % 2 ^ 1);
#pragma unroll
      for (int i = 0; i < rows / 16; ++i) HandedP<T>::put(s.p[n % 2][i], thread, &x[8 * i]);
      s.p_full[n % 2].arrive();
    };
    const auto gradients = [&] {  // dS = P ∘ (dP - Δ)
      s.p_full[n % 2].wait(n / 2 % 2);
#pragma unroll
      for (int i = 0; i < rows / 16; ++i) {
        float p[8];
        HandedP<T>::take(p, s.p[n % 2][i], thread);
#pragma unroll
        for (int f = 0; f < 4; ++f) w[i][f] = pack<T>(p[2 * f] * x[8 * i + 2 * f], p[2 * f + 1] * x[8 * i + 2 * f + 1]);
      }
      s.p_empty[n % 2].arrive();
    };
    uint4* documents_ds = nullptr;  // documents: where the first block of this tile is kept, of the query head at hand
    int kept_end = 0;
    if constexpr (C::keeps && !scores_role && C::reach == Reach::listed)
      if (t.count > 0) {
        const KeptDocuments& kept = a.kept_of_documents;
        const KeptTile k = kept.tiles[std::size_t(t.batch) * kept.most + t.pair];
        documents_ds = static_cast<uint4*>(a.kept.ds) +
                       (kept.place(t.batch, heads_of<C>(a, t).first) - kept.ranges[kept.range].place + k.offset) * kept_vectors + thread;
        kept_end = k.end;
      }
    const auto keep = [&](int m) {  // dSᵀ, while it is multiplied
      if constexpr (C::reach == Reach::listed) {
        if (m < kept_end) {
          uint4* to = documents_ds + std::size_t(m - t.first) * kept_vectors;
#pragma unroll
          for (int i = 0; i < rows / 16; ++i) to[i * 128] = make_uint4(w[i][0], w[i][1], w[i][2], w[i][3]);
        }
        return;
      }
      const int seen = a.band.reach == Reach::run ? a.band.template key_tiles<C::reach>(m * rows, rows, keys).begin : 0;
      uint4* to =
          static_cast<uint4*>(a.kept.ds) +
          ((std::size_t(t.pair) * a.kept.heads + head) * a.kept.blocks_of_head + a.kept.place(m, t.key / keys, seen)) * kept_vectors;
#pragma unroll
      for (int i = 0; i < rows / 16; ++i) to[i * 128 + thread] = make_uint4(w[i][0], w[i][1], w[i][2], w[i][3]);
    };
    const auto advance = [&](int m, auto more) {  // Sᵀ or dPᵀ of this step is here
      words.renew();
      if constexpr (scores_role) {
        weights(m);
        s.q_empty[stage(n)].arrive();
        s.do_full[stage(n)].wait(parity(n));
      } else {
        s.do_empty[stage(n)].arrive();
        gradients();
        s.q_full[stage(n)].wait(parity(n));
      }
#pragma unroll
      for (auto& fragment : w) pin(fragment);
      mma_fence();
#pragma unroll
      for (int i = 0; i < rows / 16; ++i)  // dV += Pᵀ dO, or dK += dSᵀ Q
        mma<T, Major::mn>(d, w[i], words.at(offset(scores_role ? s.dout : s.q) + stage(n) * stage_bytes + mn_offset(i), panel_bytes(rows)));
      mma_commit();
      if constexpr (decltype(more)::value) start(n + 1);
      if constexpr (C::keeps && !scores_role) keep(m);
      mma_wait<0>();
      pin(x);
      release(scores_role ? s.do_empty[stage(n)] : s.q_empty[stage(n)]);
      ++n;
    };

    int left = heads_of<C>(a, t).count * t.count, m = t.start;
    if (left > 0) {
      (scores_role ? s.k_full : s.v_full).wait(tile_parity);
      start(n);
      mma_wait<0>();
      pin(x);
      for (; left > 1; --left) {
        advance(m, std::true_type{});
        if (m = t.after(m); m == t.start) {
          ++head;
          if constexpr (C::keeps && !scores_role && C::reach == Reach::listed)
            documents_ds += std::size_t(a.kept_of_documents.blocks[t.batch]) * kept_vectors;
        }
      }
      advance(m, std::false_type{});
      release(scores_role ? s.k_empty : s.v_empty);
      tile_parity ^= 1;
    }
    pin(d);
    if constexpr (C::reach == Reach::listed) report_nan(d, a.not_numbers);
    if constexpr (C::keeps)
      if (crosses<C>(a, t).goes_on) {
        float4* to = unfinished<C>(a, t, scores_role, true);
#pragma unroll
        for (int i = 0; i < dim / 8; ++i) to[i * 128] = make_float4(d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]);
        tile.index = s.next.take(next, tile.listed ? &tile.dealt : nullptr);
        continue;
      }
    const Strides& to = scores_role ? a.dv_strides : a.dk_strides;
    store_rows(d, scores_role ? a.scale_dv : a.scale, static_cast<T*>(scores_role ? a.dv : a.dk) + t.batch * to.batch + t.kv_head * to.head,
               to.row, t.key + key_here, t.key_end, 0, scores_role ? a.dim_v : a.head_dim);
    tile.index = s.next.take(next, tile.listed ? &tile.dealt : nullptr);
  }
}

// attention_bwd_wide_dkdv_sm90 — dK, dV
//   reads   Q, dO, LSE, Δ once per 64 keys; K, V once     writes  dK, dV     needs   sm_90a, strides of 16 bytes, the preprocess before it
//   numerics  as attention_bwd_sm90; same bits every run   limit   tensor cores and shared memory alike
template <class C>
__global__ void __launch_bounds__(384, 1) attention_bwd_wide_dkdv_sm90(const __grid_constant__ WideArgs a) {
  extern __shared__ __align__(1024) char memory[];
  auto& s = *reinterpret_cast<WideShared<C>*>(memory);
  if (threadIdx.x == 0) {
    s.k_full.init(1), s.k_empty.init(4), s.v_full.init(1), s.v_empty.init(4);
    for (int i = 0; i < C::stages; ++i) s.q_full[i].init(1), s.q_empty[i].init(128 + 4), s.do_full[i].init(1), s.do_empty[i].init(128 + 4);
    for (int i = 0; i < 2; ++i) s.p_full[i].init(128), s.p_empty[i].init(128);
    s.next.init(8);
    barriers_ready();
  }
  const bool hold = meet_and_ask(a.far);
  if (threadIdx.x < 128) {
    registers_down<40>();
    if (threadIdx.x == 0) produce_wide<C>(a, s);
  } else {
    registers_up<232>();
    if (threadIdx.x < 256)
      consume_wide<C, true>(a, s, hold);
    else
      consume_wide<C, false>(a, s, hold);
  }
}

template <class C>
void start_dkdv(const WideArgs& a, int blocks, cudaStream_t stream) {
  launch(stream, attention_bwd_wide_dkdv_sm90<C>, {blocks, 384, sizeof(WideShared<C>)}, a);
}

}  // namespace headroom::attention::sm90::backward
