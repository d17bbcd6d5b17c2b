// fwd.cuh — exact attention forward on Hopper: TMA, wgmma, warp-specialised, persistent.
//
// One long pipeline per block: the step that finishes a tile of query rows already computes the first scores of the
// next, so the tensor cores idle only at the very start and the very end.
#pragma once

#include "gpu/dependent_launch.cuh"
#include "ops/attention/sm90/by_place.cuh"
#include "ops/attention/sm90/fwd_ends.cuh"

namespace headroom::attention::sm90 {

// ---- the producer: one thread -----------------------------------------------------------------------------------------
template <class C, Reach reach>
__device__ void produce(const ForwardArgs& a, Shared<C>& s) {
  using T = typename C::T;
  constexpr int columns = columns_of<C>, q_bytes = sizeof s.q[0], kv_bytes = sizeof s.k[0];
  Turn<C::q_stages> q;
  Turn<C::stages> k, v;
  const auto fetch = [](void* to, const Map& m, Barrier& full, int rows, CachePolicy keep, int row, int head, int batch) {
    for (int p = 0; p < columns / 64; ++p) load(static_cast<char*>(to) + p * panel_bytes(rows), m, full, keep, p * 64, row, head, batch);
  };
  const auto load_k = [&](const Tile& t, int tile) {
    s.k_empty[k.stage].wait(k.parity ^ 1);
    s.k_full[k.stage].arrive_and_expect(kv_bytes);
    fetch(s.k[k.stage], a.k, s.k_full[k.stage], C::keys, CachePolicy::long_time, key_of<C, reach>(t, tile), t.kv_head, t.batch);
    k.next();
  };
  const auto load_v = [&](const Tile& t, int tile) {
    s.v_empty[v.stage].wait(v.parity ^ 1);
    s.v_full[v.stage].arrive_and_expect(kv_bytes);
    fetch(s.v[v.stage], a.v, s.v_full[v.stage], C::keys, CachePolicy::long_time, key_of<C, reach>(t, tile), t.kv_head, t.batch);
    v.next();
  };
  const auto load_q = [&](const Tile& t) {
    constexpr int parts = Shared<C>::q_parts;
    if constexpr (parts == 1) {
      s.q_empty[q.stage].wait(q.parity ^ 1);
      s.q_full[q.stage].arrive_and_expect(q_bytes);
    }
    for (int w = 0; w < C::consumers; ++w) {
      Barrier& full = s.q_full[parts == 1 ? q.stage : w];
      if constexpr (parts > 1) {
        s.q_empty[w].wait(q.parity ^ 1);
        full.arrive_and_expect(q_bytes / parts);
      }
      T* const to = s.q[q.stage] + w * 64 * columns;
      const int row = t.row + w * 64;
      if constexpr (C::way == Way::cluster)
        for (int p = 0; p < columns / 64; ++p)
          load(to + p * 64 * 64, a.q, full, CachePolicy::once, p * 64, 0, row >> a.packed_log2, t.head, t.batch);
      else
        fetch(to, a.q, full, 64, CachePolicy::once, row, t.head, t.batch);
    }
    q.next();
  };

  Tiles<C, reach> tiles{a, s};
  Tile t = tiles.next();
  if (reach == Reach::listed && t.none()) return;
  load_k(t, t.last - 1);  // from the last tile down, K one tile ahead of V: the order in which they are used
  load_q(t);
  for (;;) {
    for (int tile = t.last - 2; tile >= t.first; --tile) load_k(t, tile), load_v(t, tile + 1);
    const Tile after = tiles.next();
    if (after.none()) break;
    load_k(after, after.last - 1);
    if constexpr (C::q_stages > 1) load_q(after);
    load_v(t, t.first);
    if constexpr (C::q_stages == 1) load_q(after);  // Q is free only when the tile's last scores are there
    t = after;
  }
  load_v(t, t.first);
}

// ---- a consumer: one warpgroup, 64 query rows ---------------------------------------------------------------------------
// What rows of a group see of a listed band, looked up once a tile: this thread's two rows, and the keys that all of its rows see. Other bands compute it.
template <class C, Reach reach>
struct Listed {
  static constexpr bool is = false;
  __device__ Listed(const ForwardArgs&, const Tile&, int, int) {}
  template <int n>
  __device__ void hide(float (&)[n], int, int, int) const {}
};
template <class C>
struct Listed<C, Reach::listed> {
  static constexpr bool is = true;
  int first[2], end[2], first_of_all, end_of_all;
  __device__ Listed(const ForwardArgs& a, const Tile& t, int group, int row_here) {
    const Run* const of = a.band.keys_of + (long long)t.batch * a.band.len_q;
    const auto run_of = [&](int row) {
      return of[min(t.row + group * 64 + row, t.row_end - 1)];
    };  // rows of other tiles are computed and dropped
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const Run seen = run_of(row_here + 8 * r);
      first[r] = seen.first, end[r] = seen.last;
    }
    end_of_all = run_of(0).last, first_of_all = run_of(63).first;
  }
  template <int n>
  __device__ void hide(float (&scores)[n], int key, int keys, int column) const {
    if (key + keys > end_of_all || key < first_of_all) apply_mask<true>(scores, key + column, first, end);
  }
};

// What happens to this thread's scores by their place: fall() before the mask, drop() from what the sums have seen, grow() at the end.
template <ByPlace>
struct Placed {
  __device__ __forceinline__ explicit Placed(const ForwardArgs&) {}
  __device__ __forceinline__ void begin(const ForwardArgs&, const Tile&, int) {}  // with the thread's first row
  template <int n>
  __device__ __forceinline__ void fall(float (&)[n], int) const {}  // with the key of the first score
  template <int n>
  __device__ __forceinline__ void drop(std::uint32_t (&)[n][4], int) const {}
  __device__ __forceinline__ void grow(OfRows&) const {}
};
template <>
struct Placed<ByPlace::alibi> : Placed<ByPlace::nothing> {
  Falls<false> falls;
  using Placed<ByPlace::nothing>::Placed;
  __device__ __forceinline__ void begin(const ForwardArgs& a, const Tile& t, int row) {
    falls = {a.alibi, t.batch, t.head, row, a.band.len_q, a.fall_by};
  }
  template <int n>
  __device__ __forceinline__ void fall(float (&scores)[n], int key) const {
    falls.let_fall(scores, key);
  }
};
template <>
struct Placed<ByPlace::dropout> : Placed<ByPlace::nothing> {
  Draws draws;
  HeadDraws of_head;
  std::uint32_t below;
  float factor;
  int row;
  __device__ __forceinline__ explicit Placed(const ForwardArgs& a)
      : Placed<ByPlace::nothing>(a), draws(a.dropout.draws()), below(a.dropout.below), factor(a.dropout.factor) {}
  __device__ __forceinline__ void begin(const ForwardArgs& a, const Tile& t, int first) {
    of_head = draws.of_head(t.batch * a.heads + t.head), row = first;
  }
  template <int n>
  __device__ __forceinline__ void drop(std::uint32_t (&p)[n][4], int key) const {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      std::uint32_t kept[4];
      keep<false>(kept, of_head, below, row, key + 16 * i);
#pragma unroll
      for (int f = 0; f < 4; ++f) p[i][f] &= kept[f];
    }
  }
  __device__ __forceinline__ void grow(OfRows& result) const { result.inverse[0] *= factor, result.inverse[1] *= factor; }
};

template <class C, Reach reach, bool capped>
__device__ void consume(const ForwardArgs& a, Shared<C>& s, int group) {
  using T = typename C::T;
  constexpr int dim = C::dim, keys = C::keys, stage_bytes = sizeof s.k[0];
  constexpr int first_group_barrier = 1, first_turn_barrier = 1 + C::consumers, everybody = 1 + 2 * C::consumers;  // numbered barriers
  constexpr std::true_type masked;
  constexpr std::false_type plain;
  group = same_in_warp(group);
  const int thread = threadIdx.x % 128, lane = thread % 32, group_barrier = first_group_barrier + group;
  const int row_here = thread / 32 * 16 + lane / 4, column_here = lane % 4 * 2;
  const auto q_at = describe(s.q[0] + group * 64 * columns_of<C>), k_at = describe(s.k[0]), v_at = describe(s.v[0], panel_bytes(keys));
  const auto release = [&](Barrier& b) {
    if (lane == 0) b.arrive();
  };  // one arrival per warp: each knows only of its own wgmma
  const auto my_turn = [&] { meet(first_turn_barrier + group, 256); };
  const auto pass_turn = [&] { arrive(first_turn_barrier + (group + 1) % C::consumers, 256); };
  if (group == 0) arrive(first_turn_barrier, 256);

  Turn<C::q_stages> q;
  Turn<C::stages> k, v;
  float o[dim / 2] = {}, scores[keys / 2];
  std::uint32_t p[keys / 16][4];
  Rows rows;
  Placed<C::by_place> placed(a);

  const auto scores_start = [&] {  // scores = Q Kᵀ
    s.k_full[k.stage].wait(k.parity);
    mma_fence();
#pragma unroll
    for (int i = 0; i < dim / 16; ++i)
      mma<T>(scores, k_major(step(q_at, q.stage * int(sizeof s.q[0])), 64, i), k_major(step(k_at, k.stage * stage_bytes), keys, i), i > 0);
    mma_commit();
  };
  const auto output_start = [&] {  // O += P V; the caller has fenced
    s.v_full[v.stage].wait(v.parity);
#pragma unroll
    for (int i = 0; i < keys / 16; ++i) mma<T, Major::mn>(o, p[i], mn_major(step(v_at, v.stage * stage_bytes), i));
    mma_commit();
  };
  const auto scores_done = [&] { pin(scores), release(s.k_empty[k.stage]), k.next(); };
  const auto output_done = [&] { pin(o), release(s.v_empty[v.stage]), v.next(); };
  const auto settle = [&] {  // all registers of the coming products have their values here
    pin(scores), pin(o);
#pragma unroll
    for (auto& fragment : p) pin(fragment);
  };
  const auto softmax = [&](const Tile& t, const Listed<C, reach>& listed, int tile, auto mask) {
    if constexpr (capped) cap(scores, a.capping);
    placed.fall(scores, key_of<C, reach>(t, tile) + column_here);
    if constexpr (decltype(mask)::value && Listed<C, reach>::is) {
      listed.hide(scores, key_of<C, reach>(t, tile), keys, column_here);
    } else if constexpr (decltype(mask)::value) {
      const auto position = [&](int row) {
        return C::way == Way::cluster ? (t.row + group * 64 + row) >> a.packed_log2 : t.row + group * 64 + row;
      };
      const auto end_of = [&](int row) { return min(t.key_end, a.band.open_last<reach>(position(row))); };
      const auto first_of = [&](int row) { return a.band.open_first<reach>(position(row)); };
      if ((tile + 1) * keys > end_of(0) || (reach == Reach::run && tile * keys < first_of(63))) {
        const int first[2] = {first_of(row_here), first_of(row_here + 8)}, end[2] = {end_of(row_here), end_of(row_here + 8)};
        apply_mask<reach == Reach::run>(scores, tile * keys + column_here, first, end);
      }
    }
    return rows.update<C::maxima_first>(scores, a.scale_log2);
  };
  const auto pack_scores = [&](const Tile& t, int tile) {
#pragma unroll
    for (int i = 0; i < keys / 16; ++i)
#pragma unroll
      for (int f = 0; f < 4; ++f) p[i][f] = pack<T>(scores[8 * i + 2 * f], scores[8 * i + 2 * f + 1]);
    placed.drop(p, key_of<C, reach>(t, tile) + column_here);
  };
  const auto both_products = [&] {  // the next scores and the output of the tile before; they run while other groups are in their softmax
    my_turn();
    settle();
    scores_start();
    output_start();
    mma_wait<1>();
    pass_turn();
    scores_done();
  };
  constexpr bool q_is_late = Shared<C>::q_parts > 1;
  const auto last_scores_done = [&](const Tile& t, int tile) {
    if (q_is_late && tile == t.first) release(s.q_empty[group]);
  };
  const auto advance = [&](const Tile& t, const Listed<C, reach>& listed, int tile, auto mask) {
    both_products();
    last_scores_done(t, tile);
    const float2 factor = softmax(t, listed, tile, mask);
    mma_wait<0>();
    output_done();
    pack_scores(t, tile);
    if (__any_sync(~0u, factor.x != 1 || factor.y != 1))
#pragma unroll
      for (int i = 0; i < dim / 2; ++i) o[i] *= i & 2 ? factor.y : factor.x;
  };
  const auto finish = [&](const Tile& t, const Rows& seen) {
    Rows::Result result = seen.finish(a.scale_log2);
    if constexpr (reach == Reach::listed) report_nan(o, a.not_numbers);
    if constexpr (C::way == Way::cluster) {
      store_from_cluster<C>(a, t, o, result, s, group, everybody, row_here);
    } else {
      if constexpr (C::way == Way::parts)
        if (t.parts > 1 && !add_parts<C>(a, t, o, result, s, group, group_barrier, row_here)) return;
      if constexpr (knows_sinks<reach>)
        if (a.sink) result.join(a.sink[t.head]);
      placed.grow(result);
      const int row = t.row + group * 64 + row_here, rows = reach == Reach::listed ? t.row_end : a.band.len_q;
#pragma unroll
      for (int r = 0; r < 2; ++r)
        if (column_here == 0 && row + 8 * r < rows)
          a.lse[(std::size_t(t.batch) * a.heads + t.head) * a.band.len_q + row + 8 * r] = result.lse[r];
      if constexpr (Shared<C>::stages_o)
        if (reach != Reach::listed || t.row + group * 64 + 64 <= rows)  // it clips at the tensor's end alone
          return store_through_shared<C>(a, t, o, result.inverse, s, group, group_barrier);
      if constexpr (!Shared<C>::stages_o || reach == Reach::listed) store_from_registers<C>(a, t, o, result.inverse, row, rows);
    }
  };

  const auto wait_q = [&] { s.q_full[q_is_late ? group : q.stage].wait(q.parity); };
  // The last key tile of a block's rows may lie behind all rows of this group: it is passed over, and a turn with it.
  constexpr bool may_pass_over = q_is_late && reach == Reach::before && keys >= 64;
  const auto passed_over = [&](const Tile& t) {
    return may_pass_over && t.last - t.first > 1 && (t.last - 1) * keys >= a.band.open_last<reach>(t.row + group * 64 + 63);
  };
  const auto pass_over = [&](Barrier* full, Barrier* empty, auto& at) {
    full[at.stage].wait(at.parity);
    release(empty[at.stage]);
    at.next();
  };

  Tiles<C, reach> tiles{a, s};
  Tile t = tiles.next();
  if (reach == Reach::listed && t.none()) return;  // fewer tiles than blocks
  Listed<C, reach> listed(a, t, group, row_here);
  placed.begin(a, t, t.row + group * 64 + row_here);
  if (passed_over(t)) {
    --t.last;
    my_turn(), pass_turn();
    pass_over(s.k_full, s.k_empty, k);
    pass_over(s.v_full, s.v_empty, v);
  }
  wait_q();
  my_turn();
  pin(scores);
  scores_start();
  mma_wait<0>();
  pass_turn();
  scores_done();
  last_scores_done(t, t.last - 1);
  softmax(t, listed, t.last - 1, masked);
  pack_scores(t, t.last - 1);
  for (;;) {
    int tile = t.last - 2;
    if constexpr (reach == Reach::run || reach == Reach::listed) {
      for (; tile >= t.first; --tile) advance(t, listed, tile, masked);
    } else if constexpr (reach == Reach::before) {
      const int top = t.row + group * 64, nearest = a.band.open_last<reach>(C::way == Way::cluster ? top >> a.packed_log2 : top);
      for (; tile >= t.first && (tile + 1) * keys > nearest; --tile) advance(t, listed, tile, masked);
    }
    for (; tile >= t.first; --tile) advance(t, listed, tile, plain);
    if constexpr (!q_is_late) release(s.q_empty[q.stage]);
    q.next();

    Tile after = tiles.next();
    if (after.none()) break;
    const Rows seen = rows;
    rows = Rows{};
    listed = Listed<C, reach>(a, after, group, row_here);
    placed.begin(a, after, after.row + group * 64 + row_here);
    if constexpr (q_is_late) {  // the last output of this tile, while Q arrives; then the first scores of the tile after, while O leaves
      const bool over = passed_over(after);
      my_turn();
      settle();
      mma_fence();
      output_start();
      if (over) {
        --after.last;
        pass_turn();
        pass_over(s.k_full, s.k_empty, k);
        my_turn();
      }
      wait_q();
      scores_start();
      mma_wait<1>();
      pass_turn();
      output_done();
      finish(t, seen);
      if (over) pass_over(s.v_full, s.v_empty, v);
      mma_wait<0>();
      scores_done();
      last_scores_done(after, after.last - 1);
      softmax(after, listed, after.last - 1, masked);
    } else {
      wait_q();
      both_products();  // the first scores of the tile after, the last output of this one
      softmax(after, listed, after.last - 1, masked);
      mma_wait<0>();
      output_done();
      finish(t, seen);
    }
    pack_scores(after, after.last - 1);
#pragma unroll
    for (float& x : o) x = 0;
    t = after;
  }
  settle();
  mma_fence();
  output_start();
  mma_wait<0>();
  output_done();
  finish(t, rows);
  if (thread == 0) store_wait_read<0>();
}

// attention_fwd_sm90 — O = softmax(scale · Q Kᵀ + mask) V
//   reads   Q, K, V through TMA, K and V once per 64·consumers query rows     writes  O, LSE
//   needs   sm_90a, strides of 16 bytes, len_q, len_k ≥ 1, scale > 0
//   numerics  FP32 scores and sums, P rounded to T; same bits every run
//   limit   dim 64: MUFU, issue and tensor cores alike; dim 128 and 256: tensor cores
template <class C, Reach reach, bool capped>
__global__ void __launch_bounds__((C::consumers + 1) * 128, 1) attention_fwd_sm90(const __grid_constant__ ForwardArgs a) {
  extern __shared__ __align__(1024) char memory[];
  auto& s = *reinterpret_cast<Shared<C>*>(memory);
  run_block<C, reach>(
      a, s, [&] { produce<C, reach>(a, s); }, [&](int group) { consume<C, reach, capped>(a, s, group); });
}

template <class C, Reach reach, bool capped>
void start_forward(const ForwardArgs& a, int multiprocessors, cudaStream_t stream) {
  const bool clusters = C::way == Way::cluster;
  const Grid grid{.blocks = clusters ? a.units : min(multiprocessors, a.units + a.tiles_asked),
                  .threads = (C::consumers + 1) * 128,
                  .shared_bytes = sizeof(Shared<C>),
                  .cluster = clusters ? a.blocks_of_tile : 1};
  if constexpr (reach == Reach::listed)
    launch_dependent(stream, attention_fwd_sm90<C, reach, capped>, grid, a);
  else
    launch(stream, attention_fwd_sm90<C, reach, capped>, grid, a);
}

}  // namespace headroom::attention::sm90
