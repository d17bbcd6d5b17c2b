// bwd_wide_dq.cuh — dQ of head dims up to 256: a block owns 128 rows and streams key tiles past them, like a forward.
#pragma once
#include "gpu/launch.cuh"
#include "ops/attention/sm90/bwd_wide.cuh"

namespace headroom::attention::sm90::backward {

template <class C>
struct WideQueryShared {
  using T = typename C::T;
  T q[2][64 * C::dim], dout[2][64 * C::dim];  // a half for each consumer
  T k[C::stages][C::dq_keys * C::dim], v[C::dq_v_stages][C::dq_keys * C::dim];
  Barrier q_full, q_empty, k_full[C::stages], k_empty[C::stages], v_full[C::dq_v_stages], v_empty[C::dq_v_stages];
  Handover next;
};

struct WideQueryTile {
  int row, row_end, head, batch;  // first query row; rows from row_end on belong to others
  int key, first, count;          // key tiles first … first+count-1, counted from this key
};
template <class C>
__device__ __forceinline__ WideQueryTile find_query_tile(const WideArgs& a, const Next<C>& next) {
  if constexpr (Next<C>::listed) {
    const DocumentTile& t = next.dealt.tile;
    return {t.first, t.end, next.dealt.head, next.dealt.batch, t.from, 0, t.steps};
  }
  const Place at = place(a, next.index, a.batch * a.heads, true);
  const int row = at.tile * C::dq_rows;
  const TileSpan sees = band_in<C::reach>(a.band, at.pair / a.heads).template key_tiles<C::reach>(row, C::dq_rows, C::dq_keys);
  return {row, a.band.len_q, at.pair % a.heads, at.pair / a.heads, 0, sees.begin, sees.end - sees.begin};
}

template <class C>
__device__ __forceinline__ void produce_query(const WideArgs& a, WideQueryShared<C>& s) {
  using T = typename C::T;
  Turn<C::stages> ring;
  Turn<C::dq_v_stages> v;
  Turn<2> next;
  int parity = 1;
  for (Next<C> tile(a, a.heads); tile.there();) {
    const WideQueryTile t = find_query_tile<C>(a, tile);
    const int kv_head = t.head / (a.heads / a.kv_heads);
    for (int j = t.first; j < t.first + t.count; ++j) {
      s.k_empty[ring.stage].wait(ring.parity ^ 1);
      s.k_full[ring.stage].arrive_and_expect(sizeof s.k[0]);
      load_panels<T, C::dim>(s.k[ring.stage], a.k, s.k_full[ring.stage], C::dq_keys, t.key + j * C::dq_keys, kv_head, t.batch);
      if (j == t.first) {
        s.q_empty.wait(parity);
        s.q_full.arrive_and_expect(sizeof s.q + sizeof s.dout);
        for (int g = 0; g < 2; ++g) load_panels<T, C::dim>(s.q[g], a.q, s.q_full, 64, t.row + 64 * g, t.head, t.batch);
        for (int g = 0; g < 2; ++g) load_panels<T, C::dim>(s.dout[g], a.dout, s.q_full, 64, t.row + 64 * g, t.head, t.batch);
        parity ^= 1;
      }
      s.v_empty[v.stage].wait(v.parity ^ 1);
      s.v_full[v.stage].arrive_and_expect(sizeof s.v[0]);
      load_panels<T, C::dim>(s.v[v.stage], a.v, s.v_full[v.stage], C::dq_keys, t.key + j * C::dq_keys, kv_head, t.batch);
      ring.next(), v.next();
    }
    tile.index = atomicAdd(a.next_tile, 1) + gridDim.x;  // late: see bwd_feed.cuh
    tile.look_up();
    s.next.give(next, tile.index, tile.listed ? &tile.dealt : nullptr);
  }
}

template <class C>
__device__ __forceinline__ void consume_query(const WideArgs& a, WideQueryShared<C>& s, int group, bool hold) {
  using T = typename C::T;
  constexpr int dim = C::dim, keys = C::dq_keys, stage_bytes = sizeof s.k[0];
  group = same_in_warp(group);
  const int thread = threadIdx.x % 128, lane = thread % 32, row_here = group * 64 + thread / 32 * 16 + lane / 4, column_here = lane % 4 * 2;
  const auto release = [&](Barrier& b) {
    if (lane == 0) b.arrive();
  };
  Descriptors words(&s);
  const auto offset = [&](const void* p) { return int(static_cast<const char*>(p) - reinterpret_cast<const char*>(&s)); };
  const auto stage = [](unsigned n) { return int(n % C::stages); };
  const auto parity = [](unsigned n) { return int(n / C::stages % 2); };
  const auto v_stage = [](unsigned n) { return int(n % C::dq_v_stages); };
  const auto v_parity = [](unsigned n) { return int(n / C::dq_v_stages % 2); };
  const int my_half = group * int(sizeof s.q[0]);
  unsigned n = 0;
  Turn<2> next;
  int tile_parity = 0;
  for (Next<C> tile(a, a.heads); tile.there();) {
    const WideQueryTile t = find_query_tile<C>(a, tile);
    float dq[dim / 2] = {}, scores[keys / 2], dp[keys / 2], lse[2], minus_delta[2];
    std::uint32_t ds[keys / 16][4];
    const int row = t.row + row_here;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const std::size_t at = std::size_t(t.batch * a.heads + t.head) * a.padded + stat_at(min(row + 8 * r, a.padded - 1));
      lse[r] = a.lse[at], minus_delta[r] = a.minus_delta[at];
    }
    const int group_row = t.row + group * 64;
    const BandOf<int> band = band_in<C::reach>(a.band, t.batch);
    const auto listed = [&](int row) {
      return C::reach == Reach::listed ? min(row, t.row_end - 1) : row;
    };  // rows past the last keep nothing
    const TileSpan sees = tiles_from<C::reach>(band, t.key, listed(group_row), listed(group_row + 63), keys);  // this group's rows alone

    const auto start = [&](unsigned n) {  // S = Q Kᵀ, dP = dO Vᵀ
      s.k_full[stage(n)].wait(parity(n));
      mma_fence();
#pragma unroll
      for (int i = 0; i < dim / 16; ++i)
        mma<T>(scores, words.at(offset(s.q) + my_half + k_offset(64, i)),
               words.at(offset(s.k) + stage(n) * stage_bytes + k_offset(keys, i)), i > 0);
      mma_commit();
      s.v_full[v_stage(n)].wait(v_parity(n));
#pragma unroll
      for (int i = 0; i < dim / 16; ++i)
        mma<T>(dp, words.at(offset(s.dout) + my_half + k_offset(64, i)),
               words.at(offset(s.v) + v_stage(n) * stage_bytes + k_offset(keys, i)), i > 0);
      mma_commit();
    };
    const auto advance = [&](int j, auto more) {  // S and dP of key tile j are here
      words.renew();
      if constexpr (C::capped) cap<true>(scores, a.capping);
      if (j < sees.plain_begin || j >= sees.plain_end) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int first = band.template open_first<C::reach>(listed(row + 8 * r)) - t.key - j * keys - column_here,
                    end = min(band.len_k, band.template open_last<C::reach>(listed(row + 8 * r))) - t.key - j * keys - column_here;
#pragma unroll
          for (int c = 0; c < keys / 8; ++c)
#pragma unroll
            for (int e = 0; e < 2; ++e)
              if (8 * c + e < first || 8 * c + e >= end) scores[4 * c + 2 * r + e] = C::capped ? hidden_tanh : -INFINITY;
        }
      }
#pragma unroll
      for (int i = 0; i < keys / 2; ++i) {
        const float x = scores[i];
        scores[i] = exp2_fast(fmaf(x, a.scale_log2, -lse[i / 2 % 2]));
        // 1 - tanh², and 0 for a hidden score: its own would bring dP beyond FP32, and 0 · inf is NaN. Saturating costs no instruction.
        if constexpr (C::capped) dp[i] = (dp[i] + minus_delta[i / 2 % 2]) * __saturatef(fmaf(-x, x, 1));
      }
      hold_to_one(scores, hold, a.one);
#pragma unroll
      for (int c = 0; c < keys / 8; ++c)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int i = 4 * c + 2 * r;
          const float delta = C::capped ? 0 : minus_delta[r];  // already there
          ds[c / 2][c % 2 * 2 + r] = pack<T>(scores[i] * (dp[i] + delta), scores[i + 1] * (dp[i + 1] + delta));
        }
#pragma unroll
      for (auto& fragment : ds) pin(fragment);
      pin(scores), pin(dp);
      mma_fence();
#pragma unroll
      for (int i = 0; i < keys / 16; ++i)
        mma<T, Major::mn>(dq, ds[i], words.at(offset(s.k) + stage(n) * stage_bytes + mn_offset(i), panel_bytes(keys)));  // dQ += dS K
      mma_commit();
      if constexpr (decltype(more)::value) start(n + 1);
      mma_wait<0>();
      pin(scores), pin(dp);
      release(s.k_empty[stage(n)]);
      if constexpr (decltype(more)::value) release(s.v_empty[v_stage(n + 1)]);
      ++n;
    };

    // Key tiles of the block that none of this group's rows sees are passed over.
    const int first = max(sees.begin, t.first), end = max(min(sees.end, t.first + t.count), first);
    const auto pass_over = [&](int tiles) {
      for (; tiles > 0; --tiles, ++n) {
        s.k_full[stage(n)].wait(parity(n)), s.v_full[v_stage(n)].wait(v_parity(n));
        __syncwarp();  // no product makes the lanes meet here: every lane has seen this turn of the barriers before lane 0 lets the next one begin
        release(s.k_empty[stage(n)]), release(s.v_empty[v_stage(n)]);
      }
    };
    pass_over(first - t.first);
    if (end > first) {
      s.q_full.wait(tile_parity);
      start(n);
      mma_wait<0>();
      pin(scores), pin(dp);
      release(s.v_empty[v_stage(n)]);
      int j = first;
      for (; j < end - 1; ++j) advance(j, std::true_type{});
      advance(j, std::false_type{});
    }
    if (t.count > 0) {
      s.q_full.wait(tile_parity);
      __syncwarp();
      release(s.q_empty);
      tile_parity ^= 1;
      pass_over(t.first + t.count - end);
    }
    pin(dq);
    if constexpr (C::reach == Reach::listed) report_nan(dq, a.not_numbers);
    store_rows(dq, a.scale, static_cast<T*>(a.dq) + t.batch * a.dq_strides.batch + t.head * a.dq_strides.head, a.dq_strides.row, row,
               t.row_end, 0, a.head_dim);
    tile.index = s.next.take(next, tile.listed ? &tile.dealt : nullptr);
  }
}

// attention_bwd_wide_dq_sm90 — dQ, a forward with another softmax
//   reads   K, V once per 128 rows; Q, dO, LSE, Δ once     writes  dQ     needs, numerics  as above     limit   shared memory, then tensor cores
template <class C>
__global__ void __launch_bounds__(384, 1) attention_bwd_wide_dq_sm90(const __grid_constant__ WideArgs a) {
  extern __shared__ __align__(1024) char memory[];
  auto& s = *reinterpret_cast<WideQueryShared<C>*>(memory);
  if (threadIdx.x == 0) {
    s.q_full.init(1), s.q_empty.init(8);
    for (int i = 0; i < C::stages; ++i) s.k_full[i].init(1), s.k_empty[i].init(8);
    for (int i = 0; i < C::dq_v_stages; ++i) s.v_full[i].init(1), s.v_empty[i].init(8);
    s.next.init(8);
    barriers_ready();
  }
  const bool hold = meet_and_ask(a.far);
  if (threadIdx.x < 128) {
    registers_down<24>();
    if (threadIdx.x == 0) produce_query<C>(a, s);
  } else {
    registers_up<240>();
    consume_query<C>(a, s, threadIdx.x / 128 - 1, hold);
  }
}

template <class C>
void start_dq(const WideArgs& a, int blocks, cudaStream_t stream) {
  launch(stream, attention_bwd_wide_dq_sm90<C>, {blocks, 384, sizeof(WideQueryShared<C>)}, a);
}

}  // namespace headroom::attention::sm90::backward
