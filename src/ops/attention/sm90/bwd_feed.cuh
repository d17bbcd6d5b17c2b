// bwd_feed.cuh — what the consumers of the backward's main kernel are fed with, and how their dQ leaves: shared memory, the thread that
// loads, the threads that send.
#pragma once
#include "gpu/mma.cuh"
#include "gpu/signal.cuh"
#include "gpu/tma.cuh"
#include "ops/attention/sm90/bwd_order.cuh"

namespace headroom::attention::sm90::backward {

// How dQ leaves: threads that send it off, one warp each; steps whose dQ may wait for them; barriers that say it is there, in a ring. Where one step is
// enough, the place of another's dQ is for the keys of the next tile, which arrive while this tile ends.
// `asking`: something is asked in global memory before a step's dQ is added. Documents in the free order: whether another tile has stored its own there. Who
// comes first stores, so that nothing has to be zeroed; it has its dQ at hand, so that others wait for a store alone.
template <class C, bool ordered>
struct Sending {
  static constexpr bool asking = ordered || from_list<C, ordered>;
  static constexpr int senders = asking ? 3 : 2;
  static constexpr int buffers = C::dim == 64 && !asking ? 1 : 2;
  static constexpr int ring = asking ? 2 * senders : 2 * buffers;
  static constexpr int key_tiles = 3 - buffers;
};

// dQ of a step, shared out: each consumer makes 64 rows of all columns, or all 64 rows of some columns.
template <class C>
constexpr int dq_columns(int group) {
  return C::rows == 128 ? C::dim : C::dim == 64 ? 32 : group == 0 ? 64 : C::dim - 64;
}

// Threads that load and send spill at 24, which costs more than a step has to spare: 1–4 % at head dim 64, in a fixed order 5–10 %. At 128 ptxas would
// serialise the consumers' products with less than 240 (H200, 2026-11-22).
template <class C, bool ordered>
struct Registers {
  static constexpr int producer = C::dim < 128 ? 40 : 24, consumer = producer == 40 ? 232 : 240;
};

template <class C, bool ordered>
struct Shared {
  using T = typename C::T;
  static constexpr int columns = columns_of<C>, tiles = Sending<C, ordered>::key_tiles;
  T k[tiles][keys * columns], v[tiles][keys * columns];
  T q[C::stages][C::rows * columns], dout[C::stages][C::rows * columns];
  T ds[2][C::rows * keys];
  float dq[Sending<C, ordered>::buffers][C::rows * C::dim];  // a step's: each consumer's share
  float lse[C::stages][C::rows], minus_delta[C::stages][C::rows];
  Barrier k_full[tiles], k_empty[tiles], v_full[tiles], v_empty[tiles], q_full[C::stages], q_empty[C::stages], do_full[C::stages],
      do_empty[C::stages];
  Barrier ds_full[2], dq_full[6], dq_empty[2][2], tile_full[2], tile_empty[2];
  int tile[2];
  std::conditional_t<from_list<C, ordered>, Tile, char> found[2];
};

// The tile of a block that is next. Documents' tiles are looked up by the loading thread alone, which hands them over.
template <class C, bool ordered>
struct Found {
  __device__ __forceinline__ explicit Found(const Args&) {}
  __device__ __forceinline__ int index(const Args&) const { return blockIdx.x; }
  __device__ __forceinline__ Tile at(const Args& a, int index) const { return find_tile<C, ordered>(a, index); }
};
template <class C, bool ordered>
requires from_list<C, ordered>
struct Found<C, ordered> {
  Tile tile;
  int first = blockIdx.x;
  __device__ __forceinline__ explicit Found(const Args& a) { look_up(a, first); }
  __device__ __forceinline__ void look_up(const Args& a, int& index) {
    tile = find_tile<C, ordered>(a, index);
    if (tile.batch == a.batch) index = a.tiles;
  }
  __device__ __forceinline__ int index(const Args&) const { return first; }
  __device__ __forceinline__ const Tile& at(const Args&, int) const { return tile; }
};

// ---- the producer: one thread -------------------------------------------------------------------------------------------
template <class C, bool ordered>
__device__ __forceinline__ void produce(const Args& a, Shared<C, ordered>& s) {
  using T = typename C::T;
  Turn<C::stages> at;
  Turn<2> next;
  Turn<Shared<C, ordered>::tiles> kv;
  const int padded = a.query_tiles * C::rows;
  const auto load_rows = [](T* to, const Map& m, Barrier& full, int rows, int row, int head, int batch) {
    for (int p = 0; p < columns_of<C> / 64; ++p)
      load(reinterpret_cast<char*>(to) + p * panel_bytes(rows), m, full, CachePolicy::normal, p * 64, row, head, batch);
  };
  Found<C, ordered> found(a);
  for (int index = found.index(a); index < a.tiles;) {
    const Tile t = found.at(a, index);
    const auto load_q = [&](const Walk<ordered>& w) {
      s.q_empty[at.stage].wait_awake(at.parity ^ 1);
      s.q_full[at.stage].arrive_and_expect(sizeof s.q[0] + sizeof s.lse[0]);
      load_rows(s.q[at.stage], a.q, s.q_full[at.stage], C::rows, first_row<C, ordered>(t, w.m), w.head, t.batch);
      load_run(s.lse[at.stage], a.lse + std::size_t(t.batch * a.heads + w.head) * padded + w.m * C::rows, sizeof s.lse[0],
               s.q_full[at.stage]);
    };
    const auto load_do = [&](const Walk<ordered>& w) {
      s.do_empty[at.stage].wait_awake(at.parity ^ 1);
      s.do_full[at.stage].arrive_and_expect(sizeof s.dout[0] + sizeof s.minus_delta[0]);
      load_rows(s.dout[at.stage], a.dout, s.do_full[at.stage], C::rows, first_row<C, ordered>(t, w.m), w.head, t.batch);
      load_run(s.minus_delta[at.stage], a.minus_delta + std::size_t(t.batch * a.heads + w.head) * padded + w.m * C::rows,
               sizeof s.minus_delta[0], s.do_full[at.stage]);
    };
    const auto load_k = [&] {
      s.k_empty[kv.stage].wait_awake(kv.parity ^ 1);
      s.k_full[kv.stage].arrive_and_expect(sizeof s.k[0]);
      load_rows(s.k[kv.stage], a.k, s.k_full[kv.stage], keys, t.key, t.kv_head, t.batch);
    };
    const auto load_v = [&] {
      s.v_empty[kv.stage].wait_awake(kv.parity ^ 1);
      s.v_full[kv.stage].arrive_and_expect(sizeof s.v[0]);
      load_rows(s.v[kv.stage], a.v, s.v_full[kv.stage], keys, t.key, t.kv_head, t.batch);
    };
    Walk<ordered> w(a, t);
    if (w.more()) {  // nothing is loaded for keys that no row sees
      if constexpr (Shared<C, ordered>::tiles == 2) {
        load_k();
        load_q(w);
      } else {  // Q's place is free before K's
        load_q(w);
        load_k();
      }
      load_do(w);
      load_v();
      kv.next();
      at.next();
      for (w.next(); w.more(); w.next()) {
        load_q(w);
        load_do(w);
        at.next();
      }
    }
    // Claim the next tile late, when all loads of this one are under way: an early claim blocks a tile that an idle block could start.
    index = int(gridDim.x) + (dealt<C, ordered>(a) ? index : atomicAdd(a.next_tile, 1));
    if constexpr (from_list<C, ordered>) found.look_up(a, index);
    s.tile_empty[next.stage].wait_awake(next.parity ^ 1);
    s.tile[next.stage] = index;
    if constexpr (from_list<C, ordered>) s.found[next.stage] = found.tile;
    s.tile_full[next.stage].arrive();
    next.next();
  }
}

// ---- dQ's way out --------------------------------------------------------------------------------------------------------
// Each step has two halves to send, one from each consumer; the senders take them in turn. In a fixed order there are three senders: asking
// for one's turn, waiting until an addition is complete and saying so take one thread longer than a step.
constexpr int unclaimed = 0, claimed = 1, stored = 2;  // what `turns` says of a query tile's half in the free order of documents

template <class C, bool ordered>
__device__ __forceinline__ void send_dq(const Args& a, Shared<C, ordered>& s, int sender) {
  constexpr int share = 64 * dq_columns<C>(0), senders = Sending<C, ordered>::senders;  // floats of the first consumer
  Turn<2> next;
  Turn<Sending<C, ordered>::ring> full;  // the barrier of this step's first half
  int buffer = 0;
  int group = sender % senders;             // this thread's half of the step; 2: neither
  [[maybe_unused]] int patience = 1 << 25;  // half a minute
  Found<C, ordered> found(a);
  for (int index = found.index(a); index < a.tiles;) {
    const Tile t = found.at(a, index);
    TurnsFor<C> turns(a, t);
    for (Walk<ordered> w(a, t); w.more();) {
      if (group < 2) {
        const int at = ((t.batch * a.heads + w.head) * a.query_tiles + w.m) * 2 + group;
        int before = ordered ? turns.at(w.m) : 1;
        [[maybe_unused]] bool there = false;
        if constexpr (from_list<C, ordered>) there = read_acquire(a.turns + at) == stored;
        if (ordered && before > 0) {  // plain counters instead of acquire and release are faster and not repeatable (H200, 2026-11-21)
          if constexpr (C::reach == Reach::listed)
            while (read_acquire(a.turns + at) != before && patience > 0) --patience;
          else
            while (read_acquire(a.turns + at) != before) {}
          proxy_fence_global();
        }
        s.dq_full[full.stage + group].wait_awake(full.parity);
        if constexpr (from_list<C, ordered>) {
          if (!there) before = atomicCAS(a.turns + at, unclaimed, claimed) == unclaimed ? 0 : 1;
          if (!there && before > 0)
            while (read_acquire(a.turns + at) != stored) {}
          proxy_fence_global();
        }
        proxy_fence();  // for all that the consumer wrote: a fence anywhere on the way from writer to reader orders them, and here it stalls no warp
        float* const to = a.dq + std::size_t(at / 2) * (C::rows * C::dim) + group * share;
        const float* const from = s.dq[buffer] + group * share;
        const int bytes = 256 * dq_columns<C>(group);
        if (before == 0)
          store_run(to, from, bytes);
        else
          add_to(to, from, bytes);
        store_commit();
        store_wait_read<0>();
        s.dq_empty[buffer][group].arrive();
        if (from_list<C, ordered> && before == 0) {
          store_wait<0>();
          proxy_fence_global();
          add_release(a.turns + at, stored - claimed);
        }
        if (ordered) {
          store_wait<0>();
          proxy_fence_global();
          add_release(a.turns + at, 1);
        }
      }
      full.next(), full.next();
      if (Sending<C, ordered>::buffers == 2) buffer ^= 1;
      if constexpr (senders == 3) group = group == 0 ? 1 : group == 1 ? 2 : 0;  // halves 2n and 2n + 1, by threes
      if (w.next())
        turns.begin_head();
      else if (ordered)
        turns.step_to(w.m);
    }
    s.tile_full[next.stage].wait_awake(next.parity);
    index = s.tile[next.stage];
    if constexpr (from_list<C, ordered>) found.tile = s.found[next.stage];
    s.tile_empty[next.stage].arrive(), next.next();
  }
  store_wait<0>();
}

}  // namespace headroom::attention::sm90::backward
