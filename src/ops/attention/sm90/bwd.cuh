// bwd.cuh — exact attention backward on Hopper for head dims up to 128: the kernel that makes dK, dV and sums dQ.
// A block owns 128 keys of one kv head and streams query tiles past them; dK and dV stay in registers, dQ is summed in global memory in fp32.
//   Sᵀ = K Qᵀ    P = exp(scale·S - LSE)    dPᵀ = V dOᵀ    dS = P ∘ (dP - Δ)    dV += Pᵀ dO    dK += dSᵀ Q    dQ += dS K
// Scores are kept transposed, so that Pᵀ and dSᵀ are already the register operand of dV and dK.
#pragma once
#include "gpu/launch.cuh"
#include "ops/attention/sm90/bwd_feed.cuh"
#include "ops/attention/sm90/bwd_rows.cuh"
#include "ops/attention/sm90/by_place.cuh"

namespace headroom::attention::sm90::backward {

template <class C>  // may be asked to turn dQ and dK back
constexpr bool turns_gradients = C::reach == Reach::run && !C::capped && C::by_place == ByPlace::nothing;

// ---- a consumer: one warpgroup, 64 keys -----------------------------------------------------------------------------------
template <class C, bool ordered, int dq_n>  // dq_n: its columns of dQ
__device__ __forceinline__ void consume(const Args& a, Shared<C, ordered>& s, int group, bool hold) {
  using T = typename C::T;
  constexpr int dim = C::dim, rows = C::rows;
  group = same_in_warp(group);
  const int thread = threadIdx.x % 128, lane = thread % 32;
  const int key_here = group * 64 + thread / 32 * 16 + lane / 4, column_here = lane % 4 * 2;
  const auto release = [&](Barrier& b) {  // what products have read; what lanes have read themselves, the statistics, every lane hands back
    if (lane == 0) b.arrive();
  };
  Descriptors words(&s);
  const auto offset = [&](const void* p) { return int(static_cast<const char*>(p) - reinterpret_cast<const char*>(&s)); };
  const int ds_columns = rows == 128 ? group * panel_bytes(keys) : 0;  // dQ's share of a group: 64 query rows, or half the dims
  constexpr int stage_bytes = sizeof s.q[0];

  constexpr int turn_barrier = 1;  // numbered barriers 1 and 2
  const auto my_turn = [&] { meet(turn_barrier + group, 256); };
  const auto pass_turn = [&] { arrive(turn_barrier + 1 - group, 256); };
  if (group == 0) arrive(turn_barrier, 256);
  constexpr int buffers = Sending<C, ordered>::buffers;
  const auto stage = [](int n) { return n % C::stages; };
  const auto parity = [](int n) { return n / C::stages % 2; };
  unsigned n = 0;  // steps behind us: all rings turn once a step
  Turn<2> next;
  Turn<Shared<C, ordered>::tiles> kv;
  [[maybe_unused]] Draws draws{};
  float of_dv = 1;
  if constexpr (C::by_place == ByPlace::dropout) draws = a.dropout.draws(), of_dv = a.dropout.factor;
  Found<C, ordered> found(a);
  for (int index = found.index(a); index < a.tiles;) {
    const Tile t = found.at(a, index);
    const int kv_at = Shared<C, ordered>::tiles > 1 ? same_in_warp(kv.stage * int(sizeof s.k[0])) : 0;
    const int my_rows = kv_at + group * 64 * 128;  // where this group's rows of K and V begin
    const int k_columns = kv_at + (rows == 128 ? 0 : dim > 64 ? group * panel_bytes(keys) : group * 64);
    float dk[dim / 2] = {}, dv[dim / 2] = {}, scores[rows / 2], dp[rows / 2], dq[dq_n / 2];
    std::uint32_t p[rows / 16][4], ds[rows / 16][4];
    constexpr bool drops = C::by_place == ByPlace::dropout;
    constexpr int seconds = C::capped || drops ? rows / 16 : 1;
    [[maybe_unused]] std::uint32_t second_p[seconds][4];  // P times the slope of the cap; or P as it was before dropout

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
      s.ds_full[n % 2].wait_awake(n / 2 % 2);
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
        *reinterpret_cast<float4*>(&s.dq[n % buffers][group * 64 * dq_columns<C>(0) + (j * 128 + thread) * 4]) =
            make_float4(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
      __syncwarp();
      release(s.dq_full[2 * n % Sending<C, ordered>::ring + group]);
    };
    const auto dv_start = [&] {  // dV += Pᵀ dO
#pragma unroll
      for (auto& fragment : p) pin(fragment);
      mma_fence();
#pragma unroll
      for (int i = 0; i < rows / 16; ++i) mma<T, Major::mn>(dv, p[i], words.at(stage_at(s.dout, n) + mn_offset(i), panel_bytes(rows)));
      mma_commit();
    };
    const auto dp_start = [&] {  // dPᵀ = -Δ + V dOᵀ; with dropout without Δ
      pin(dp);
      mma_fence();
#pragma unroll
      for (int i = 0; i < dim / 16; ++i)
        mma<T>(dp, words.at(offset(s.v) + my_rows + k_offset(keys, i)), words.at(stage_at(s.dout, n) + k_offset(rows, i)), !drops || i > 0);
      mma_commit();
    };
    // One step. The step before has left dS: its dK and dQ run here, beside this step's scores, so that the consumers may drift apart and one's
    // arithmetic runs while the other's products do. Arithmetic beside one's own products stays in place, in FP32: registers of another form are
    // made when the products are done, or ptxas has too few and serialises them all (C7512).
    const auto advance = [&](int m, int head, auto later) {
      constexpr bool before = decltype(later)::value;
      const auto row_here = [&] { return first_row<C, ordered>(t, m) + column_here; };
      const auto dp_begins = [&] {
        s.do_full[stage(n)].wait_awake(parity(n));
        if constexpr (!before) s.v_full[kv.stage].wait_awake(kv.parity);
        if constexpr (before && !C::dq_beside_scores) s.dq_empty[(n - 1) % buffers][group].wait_awake((n - 1) / buffers % 2 ^ 1);
        if constexpr (!drops) begin_at(dp, &s.minus_delta[stage(n)][2 * column_here]);
      };
      words.renew();
      s.q_full[stage(n)].wait_awake(parity(n));
      float4 lse_here[rows / 16];  // before the products are started: under them a load waits long for shared memory
#pragma unroll
      for (int i = 0; i < rows / 16; ++i) lse_here[i] = *reinterpret_cast<const float4*>(&s.lse[stage(n)][16 * i + 2 * column_here]);
      my_turn();
      mma_fence();
#pragma unroll
      for (int i = 0; i < dim / 16; ++i)  // Sᵀ = K Qᵀ
        mma<T>(scores, words.at(offset(s.k) + my_rows + k_offset(keys, i)), words.at(stage_at(s.q, n) + k_offset(rows, i)), i > 0);
      mma_commit();
      if constexpr (before) dk_start(n - 1);
      if constexpr (before && C::dq_beside_scores) dq_start(n - 1);
      pass_turn();
      mma_wait<before + (before && C::dq_beside_scores)>();
      pin(scores);

      if constexpr (C::capped) cap<true>(scores, a.capping);
      if constexpr (C::by_place == ByPlace::alibi)
        Falls<true>(a.alibi, t.batch, head, t.key + key_here, a.band.len_k, a.fall_by).let_fall(scores, row_here());
      if (m < t.plain_from || m >= t.plain_to)  // some row of this step does not see some key of this tile
        hide_unseen<C::reach, C::capped>(scores, a.band, t.batch, t.key + key_here, from_list<C, ordered> ? t.key_end : a.band.len_k,
                                         row_here());
      if constexpr (!C::capped) weigh(scores, a.scale_log2, lse_here), hold_to_one(scores, hold);
      if constexpr (before) mma_wait<0>(), pin(dk), pin(scores);
      if constexpr (before && C::dq_beside_scores) {
        s.dq_empty[(n - 1) % buffers][group].wait_awake((n - 1) / buffers % 2 ^ 1);
        dq_out(n - 1);
      }
      if constexpr (C::capped) {
        weigh_capped<T>(p, scores, a.scale_log2, lse_here, hold, 1,
                        [&](int i, float x, float y) { second_p[i / 8][i / 2 % 4] = pack<T>(x, y); });
      } else {
#pragma unroll
        for (int i = 0; i < rows / 16; ++i)
#pragma unroll
          for (int f = 0; f < 4; ++f) p[i][f] = pack<T>(scores[8 * i + 2 * f], scores[8 * i + 2 * f + 1]);
      }
      if constexpr (drops) {
        const HeadDraws of_head = draws.of_head(t.batch * a.heads + head);
#pragma unroll
        for (int i = 0; i < rows / 16; ++i) {
          std::uint32_t kept[4];
          keep<true>(kept, of_head, a.dropout.below, t.key + key_here, row_here() + 16 * i);
#pragma unroll
          for (int f = 0; f < 4; ++f) second_p[i % seconds][f] = p[i][f], p[i][f] &= kept[f];
        }
      }
      dp_begins();
      if constexpr (before) s.q_empty[stage(n - 1)].arrive();

      my_turn();
      if constexpr (C::dp_first) {
        dp_start();
        if constexpr (before && !C::dq_beside_scores) dq_start(n - 1);
        dv_start();
      } else {
        dv_start();
        dp_start();
        if constexpr (before && !C::dq_beside_scores) dq_start(n - 1);
      }
      pass_turn();
      mma_wait<C::dp_first || (before && !C::dq_beside_scores)>();  // all but the last of them
      pin(dp);
      if constexpr (before && C::dq_early && !C::dq_beside_scores) dq_out(n - 1);
#pragma unroll  // by the rounded P: the scores' registers are free while the products run
      for (int i = 0; i < rows / 16; ++i)
        if constexpr (drops)
          multiply_dropped<T>(&dp[8 * i], p[i], second_p[i % seconds],
                              *reinterpret_cast<const float4*>(&s.minus_delta[stage(n)][16 * i + 2 * column_here]), a.of_delta);
        else
          multiply<T>(&dp[8 * i], C::capped ? second_p[i % seconds] : p[i]);
      mma_wait<0>();
      pin(dp), pin(dv);
#pragma unroll
      for (int i = 0; i < rows / 16; ++i)
#pragma unroll
        for (int f = 0; f < 4; ++f) ds[i][f] = pack<T>(dp[8 * i + 2 * f], dp[8 * i + 2 * f + 1]);
      char* ds_out = reinterpret_cast<char*>(s.ds[n % 2]);
#pragma unroll
      for (int i = 0; i < rows / 16; ++i)
        store_blocks(ds_out + i / 4 * panel_bytes(keys) + swizzled(group * 64 + thread / 32 * 16 + lane % 16, i % 4 * 2 + lane / 16),
                     ds[i][0], ds[i][1], ds[i][2], ds[i][3]);
      __syncwarp();
      release(s.ds_full[n % 2]);  // also says: this warp has waited for the dQ that read the other buffer
      s.do_empty[stage(n)].arrive();
      if constexpr (before && !C::dq_early && !C::dq_beside_scores) dq_out(n - 1);
      ++n;  // nothing is in flight where the loop turns: ptxas would serialise every wgmma (C7514)
    };

    const auto store = [&](const auto& x, float factor, void* to, const Strides& s, int columns) {
      store_rows(x, factor, static_cast<T*>(to) + t.batch * s.batch + t.kv_head * s.head, s.row, t.key + key_here,
                 t.batch >= a.batch      ? 0
                 : from_list<C, ordered> ? t.key_end
                                         : a.band.len_k,
                 0, columns);
    };
    Walk<ordered> w(a, t);
    if (w.more()) {
      s.k_full[kv.stage].wait_awake(kv.parity);
      advance(w.m, w.head, std::false_type{});
      for (w.next(); w.more(); w.next()) advance(w.m, w.head, std::true_type{});
      __syncwarp();
      release(s.v_empty[kv.stage]);
      words.renew();
      my_turn();
      dk_start(n - 1), dq_start(n - 1);
      pass_turn();
      store(dv, of_dv, a.dv, a.dv_strides, a.dim_v);
      mma_wait<0>();
      __syncwarp();
      s.q_empty[stage(n - 1)].arrive(), release(s.k_empty[kv.stage]);
      s.dq_empty[(n - 1) % buffers][group].wait_awake((n - 1) / buffers % 2 ^ 1);
      dq_out(n - 1);
      kv.next();
    }
    if (t.count == 0) store(dv, of_dv, a.dv, a.dv_strides, a.dim_v);
    pin(dk);
    if constexpr (turns_gradients<C>)
      if (a.turned_by) turn_back(dk, a.turned_by, t.key + key_here, a.band.len_k);
    store(dk, a.scale, a.dk, a.dk_strides, a.head_dim);
    if constexpr (C::reach == Reach::listed) report_nan(dk, a.not_numbers), report_nan(dv, a.not_numbers);

    s.tile_full[next.stage].wait_awake(next.parity);
    index = s.tile[next.stage];
    if constexpr (from_list<C, ordered>) found.tile = s.found[next.stage];
    s.tile_empty[next.stage].arrive(), next.next();
  }
}

// attention_bwd_sm90 — dK, dV and the fp32 sum of dQ/scale
//   reads   Q, dO, LSE, Δ once per 128 keys; K, V once (through TMA)     writes  dK, dV; adds to dq (ordered: the first key tile stores)
//   needs   sm_90a, strides of 16 bytes, len_k >= 1, the preprocess before it in the stream
//           ordered: all blocks on the card at once, for they wait for each other
//   numerics  FP32 scores and sums, P and dS rounded to T as operands; dK, dV repeat bit for bit, dQ too if ordered
//   limit   shared memory bandwidth, then the tensor cores
template <class C, bool ordered>
__global__ void __launch_bounds__(384, 1) attention_bwd_sm90(const __grid_constant__ Args a) {
  static_assert(sizeof(Shared<C, ordered>) <= 227 * 1024);
  using R = Registers<C, ordered>;
  static_assert(R::producer + 2 * R::consumer <= 3 * 168);  // what 384 threads are launched with
  extern __shared__ __align__(1024) char memory[];
  auto& s = *reinterpret_cast<Shared<C, ordered>*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < s.tiles; ++i)
      s.k_full[i].init(1), s.k_empty[i].init(8), s.v_full[i].init(1), s.v_empty[i].init(8);  // empty: a consumer warp each
    for (int i = 0; i < C::stages; ++i) s.q_full[i].init(1), s.q_empty[i].init(256), s.do_full[i].init(1), s.do_empty[i].init(256);
    for (int i = 0; i < 2; ++i)
      s.ds_full[i].init(8), s.dq_empty[i][0].init(1), s.dq_empty[i][1].init(1), s.tile_full[i].init(1),
          s.tile_empty[i].init(256 + Sending<C, ordered>::senders);
    for (auto& full : s.dq_full) full.init(4);
    barriers_ready();
  }
  const bool hold = meet_and_ask(a.far);
  if (threadIdx.x < 128) {
    registers_down<R::producer>();
    if (threadIdx.x == 0) produce<C, ordered>(a, s);
    if (threadIdx.x % 32 == 0 && threadIdx.x > 0 && threadIdx.x <= 32 * Sending<C, ordered>::senders)
      send_dq<C, ordered>(a, s, threadIdx.x / 32 - 1);
  } else {
    registers_up<R::consumer>();
    constexpr int first = dq_columns<C>(0), second = dq_columns<C>(1);
    if constexpr (first == second)
      consume<C, ordered, first>(a, s, threadIdx.x / 128 - 1, hold);
    else if (same_in_warp(threadIdx.x) < 256)
      consume<C, ordered, first>(a, s, 0, hold);
    else
      consume<C, ordered, second>(a, s, 1, hold);
  }
}

template <class C, bool ordered>
void start_main(const Args& a, int blocks, cudaStream_t stream) {
  launch(stream, attention_bwd_sm90<C, ordered>, {blocks, 384, sizeof(Shared<C, ordered>)}, a);
}

}  // namespace headroom::attention::sm90::backward
