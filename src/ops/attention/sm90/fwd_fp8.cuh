// fwd_fp8.cuh — attention forward on Hopper with E4M3 operands: fwd.cuh's pipeline with products of 8 bits.
//
// Both products take k-major operands only, so V arrives transposed in blocks of 16 keys (fp8.h), its keys in the order in which an accumulator of
// scores becomes the next product's operand: no shuffles.
#pragma once

#include "gpu/launch.cuh"
#include "gpu/mma_fp8.cuh"
#include "ops/attention/sm90/fwd_ends.cuh"
#include "ops/attention/sm90/fwd_fp8.h"
#include "ops/attention/sm90/tiles_fp8.h"

namespace headroom::attention::sm90 {

template <class C>
constexpr int operand_columns = (C::dim + 127) / 128 * 128;  // Q's and K's: panels of 128 bytes, the last one perhaps half empty

template <class C>
requires requires { typename C::Operand; }
struct Shared<C> {
  using T = typename C::T;
  using Operand = typename C::Operand;
  static constexpr bool stages_o = C::stages_o;
  static constexpr int q_parts = 1;
  Operand q[C::q_stages][C::consumers * 64 * operand_columns<C>];
  T o[stages_o ? C::consumers * 64 * columns_of<C> : 512];
  Operand k[C::stages][C::keys * operand_columns<C>];
  Operand v[C::stages][C::keys * C::dim];  // bricks: blocks of 16 keys, 8 dimensions after another
  Barrier q_full[C::q_stages], q_empty[C::q_stages], k_full[C::stages], k_empty[C::stages], v_full[C::stages], v_empty[C::stages],
      tile_full[2], tile_empty[2];
  Tile tile[2];
};

struct E4m3Range {  // the range that fp8_layout.h describes
  static constexpr bool exact = false;
  static constexpr float slack = fp8_slack, lift = fp8_lift;
};
using Fp8Rows = RowsWithin<E4m3Range>;

template <class C, Reach reach>
__device__ void produce_fp8(const ForwardFp8Args& a, Shared<C>& s) {
  constexpr int panels = operand_columns<C> / 128, q_bytes = sizeof s.q[0], k_bytes = sizeof s.k[0], v_bytes = sizeof s.v[0];
  Turn<C::q_stages> q;
  Turn<C::stages> k, v;
  const auto fetch = [](void* to, const Map& m, Barrier& full, int rows, CachePolicy keep, int row, int head, int batch) {
    for (int p = 0; p < panels; ++p) load(static_cast<char*>(to) + p * panel_bytes(rows), m, full, keep, p * 128, row, head, batch);
  };
  const auto load_k = [&](const Tile& t, int tile) {
    s.k_empty[k.stage].wait(k.parity ^ 1);
    s.k_full[k.stage].arrive_and_expect(k_bytes);
    fetch(s.k[k.stage], a.k, s.k_full[k.stage], C::keys, CachePolicy::long_time, tile * C::keys, t.kv_head, t.batch);
    k.next();
  };
  const auto load_v = [&](const Tile& t, int tile) {
    s.v_empty[v.stage].wait(v.parity ^ 1);
    s.v_full[v.stage].arrive_and_expect(v_bytes);
    load(s.v[v.stage], a.v, s.v_full[v.stage], CachePolicy::long_time, 0, 0, tile * (C::keys / int(keys_of_v_block)), t.kv_head, t.batch);
    v.next();
  };
  const auto load_q = [&](const Tile& t) {
    s.q_empty[q.stage].wait(q.parity ^ 1);
    s.q_full[q.stage].arrive_and_expect(q_bytes);
    for (int w = 0; w < C::consumers; ++w)
      fetch(s.q[q.stage] + w * 64 * operand_columns<C>, a.q, s.q_full[q.stage], 64, CachePolicy::once, t.row + w * 64, t.head, t.batch);
    q.next();
  };

  Tiles<C, reach> tiles{a, s};
  Tile t = tiles.next();
  load_k(t, t.last - 1);  // the order in which they are used, as in fwd.cuh
  load_q(t);
  for (;;) {
    for (int tile = t.last - 2; tile >= t.first; --tile) load_k(t, tile), load_v(t, tile + 1);
    const Tile after = tiles.next();
    if (after.none()) break;
    load_k(after, after.last - 1);
    if constexpr (C::q_stages > 1) load_q(after);
    load_v(t, t.first);
    if constexpr (C::q_stages == 1) load_q(after);
    t = after;
  }
  load_v(t, t.first);
}

template <class C, Reach reach>
__device__ void consume_fp8(const ForwardFp8Args& a, Shared<C>& s, int group) {
  constexpr int dim = C::dim, keys = C::keys, k_bytes = sizeof s.k[0], v_bytes = sizeof s.v[0];
  constexpr int first_group_barrier = 1, first_turn_barrier = 1 + C::consumers;  // numbered barriers
  constexpr std::true_type masked;
  constexpr std::false_type plain;
  group = same_in_warp(group);
  const int thread = threadIdx.x % 128, lane = thread % 32, group_barrier = first_group_barrier + group;
  const int row_here = thread / 32 * 16 + lane / 4, column_here = lane % 4 * 2;
  const auto q_at = describe(s.q[0] + group * 64 * operand_columns<C>), k_at = describe(s.k[0]),
             v_at = describe_bricks(s.v[0], int(keys_of_v_block) * dim);
  const auto release = [&](Barrier& b) {
    if (lane == 0) b.arrive();
  };
  const auto my_turn = [&] {
    if constexpr (C::turns) meet(first_turn_barrier + group, 256);
  };
  const auto pass_turn = [&] {
    if constexpr (C::turns) arrive(first_turn_barrier + (group + 1) % C::consumers, 256);
  };
  if (C::turns && group == 0) arrive(first_turn_barrier, 256);

  Turn<C::q_stages> q;
  Turn<C::stages> k, v;
  float o[dim / 2] = {}, scores[keys / 2];
  std::uint32_t p[keys / 32][4];
  Fp8Rows rows;

  const auto scores_start = [&] {  // scores = Q Kᵀ
    s.k_full[k.stage].wait(k.parity);
    mma_fence();
#pragma unroll
    for (int i = 0; i < dim / 32; ++i)  // 32 numbers of 8 bits are as wide as 16 of 16
      mma_e4m3(scores, k_major(step(q_at, q.stage * int(sizeof s.q[0])), 64, i), k_major(step(k_at, k.stage * k_bytes), keys, i), i > 0);
    mma_commit();
  };
  const auto output_start = [&] {  // O += P V; the caller has fenced
    s.v_full[v.stage].wait(v.parity);
#pragma unroll
    for (int i = 0; i < keys / 32; ++i) mma_e4m3(o, p[i], step(v_at, v.stage * v_bytes + i * 2 * int(keys_of_v_block) * dim));
    mma_commit();
  };
  const auto scores_done = [&] { pin(scores), release(s.k_empty[k.stage]), k.next(); };
  const auto output_done = [&] { pin(o), release(s.v_empty[v.stage]), v.next(); };
  const auto settle = [&] {  // all registers of the coming products have their values here
    pin(scores), pin(o);
#pragma unroll
    for (auto& fragment : p) pin(fragment);
  };
  // What a product of stored numbers is multiplied with, of a tile's head. Held to where neither −∞ · scale nor 0 · scale is NaN.
  const auto scale_of = [&](const Tile& t) {
    const float of_both = __ldg(a.q_scale + t.batch * a.heads + t.head) * __ldg(a.k_scale + t.batch * a.kv_heads + t.kv_head);
    const float scale = of_both * a.scale_log2;
    return scale < 0x1p-126f ? 0x1p-126f : scale > 0x1p100f ? 0x1p100f : scale;  // a NaN stays one
  };
  const auto softmax = [&](const Tile& t, float scale, int tile, auto mask) {
    if constexpr (decltype(mask)::value) {
      const auto end_of = [&](int row) { return min(t.key_end, a.band.open_last<reach>(t.row + group * 64 + row)); };
      const auto first_of = [&](int row) { return a.band.open_first<reach>(t.row + group * 64 + row); };
      if ((tile + 1) * keys > end_of(0) || (reach == Reach::run && tile * keys < first_of(63))) {
        const int first[2] = {first_of(row_here), first_of(row_here + 8)}, end[2] = {end_of(row_here), end_of(row_here + 8)};
        apply_mask<reach == Reach::run>(scores, tile * keys + column_here, first, end);
      }
    }
    return rows.template update<C::maxima_first>(scores, scale);
  };
  const auto pack_scores = [&] {
#pragma unroll
    for (int i = 0; i < keys / 32; ++i)
#pragma unroll
      for (int f = 0; f < 4; ++f) {  // rows r and r + 8 of 16 keys, then of the next 16
        const float* const x = scores + 16 * i + f / 2 * 8 + f % 2 * 2;
        p[i][f] = pack_e4m3(x[0], x[1], x[4], x[5]);
      }
  };
  const auto both_products = [&] {
    my_turn();
    settle();
    scores_start();
    output_start();
    mma_wait<1>();
    pass_turn();
    scores_done();
  };
  const auto advance = [&](const Tile& t, float scale, int tile, auto mask) {
    both_products();
    const float2 factor = softmax(t, scale, tile, mask);
    mma_wait<0>();
    output_done();
    pack_scores();
    if (__any_sync(~0u, factor.x != 1 || factor.y != 1))
#pragma unroll
      for (int i = 0; i < dim / 2; ++i) o[i] *= i & 2 ? factor.y : factor.x;
  };
  const auto finish = [&](const Tile& t, float scale, const Fp8Rows& seen) {
    const auto result = seen.finish(scale);
    const float of_v = __ldg(a.v_scale + t.batch * a.kv_heads + t.kv_head);
    const float inverse[2] = {result.inverse[0] * of_v, result.inverse[1] * of_v};
    const int row = t.row + group * 64 + row_here;
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (column_here == 0 && row + 8 * r < a.band.len_q)
        a.lse[(std::size_t(t.batch) * a.heads + t.head) * a.band.len_q + row + 8 * r] = result.lse[r];
    if constexpr (Shared<C>::stages_o)
      store_through_shared<C>(a, t, o, inverse, s, group, group_barrier);
    else
      store_from_registers<C>(a, t, o, inverse, row, a.band.len_q);
  };

  Tiles<C, reach> tiles{a, s};
  Tile t = tiles.next();
  float scale = scale_of(t);
  s.q_full[q.stage].wait(q.parity);
  my_turn();
  pin(scores);
  scores_start();
  mma_wait<0>();
  pass_turn();
  scores_done();
  softmax(t, scale, t.last - 1, masked);
  pack_scores();
  for (;;) {
    int tile = t.last - 2;
    if constexpr (reach == Reach::run) {
      for (; tile >= t.first; --tile) advance(t, scale, tile, masked);
    } else if constexpr (reach == Reach::before) {
      const int nearest = a.band.open_last<reach>(t.row + group * 64);
      for (; tile >= t.first && (tile + 1) * keys > nearest; --tile) advance(t, scale, tile, masked);
    }
    for (; tile >= t.first; --tile) advance(t, scale, tile, plain);
    release(s.q_empty[q.stage]), q.next();

    const Tile after = tiles.next();
    if (after.none()) break;
    const float scale_after = scale_of(after);
    const Fp8Rows seen = rows;
    rows = Fp8Rows{};
    s.q_full[q.stage].wait(q.parity);
    both_products();  // the first scores of the tile after, the last output of this one
    softmax(after, scale_after, after.last - 1, masked);
    mma_wait<0>();
    output_done();
    finish(t, scale, seen);
    pack_scores();
#pragma unroll
    for (float& x : o) x = 0;
    t = after;
    scale = scale_after;
  }
  settle();
  mma_fence();
  output_start();
  mma_wait<0>();
  output_done();
  finish(t, scale, rows);
  if (thread == 0) store_wait_read<0>();
}

// attention_fwd_sm90_fp8 — O = softmax(scale · Q Kᵀ + mask) V, Q, K, V in E4M3 with a scale a head
//   reads   Q, K, V through TMA     writes  O in bf16, LSE
//   needs   sm_90a, head dims that 16 divides, len_q, len_k ≥ 1, scale > 0
//   numerics  scores and sums as Hopper adds 8-bit products; P ≤ 2^8.75 rounded to E4M3, its sum before rounding; same bits every run
//   limit   dim 64: MUFU and issue; dim 128: these and tensor cores alike; dim 256: tensor cores
template <class C, Reach reach>
__global__ void __launch_bounds__((C::consumers + 1) * 128, 1) attention_fwd_sm90_fp8(const __grid_constant__ ForwardFp8Args a) {
  extern __shared__ __align__(1024) char memory[];
  auto& s = *reinterpret_cast<Shared<C>*>(memory);
  run_block<C, reach>(
      a, s, [&] { produce_fp8<C, reach>(a, s); }, [&](int group) { consume_fp8<C, reach>(a, s, group); });
}

template <class C, Reach reach>
void start_forward_fp8(const ForwardFp8Args& a, int multiprocessors, cudaStream_t stream) {
  launch(stream, attention_fwd_sm90_fp8<C, reach>,
         {.blocks = min(multiprocessors, a.units + a.tiles_asked), .threads = (C::consumers + 1) * 128, .shared_bytes = sizeof(Shared<C>)},
         a);
}

}  // namespace headroom::attention::sm90
