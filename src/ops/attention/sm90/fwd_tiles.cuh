// fwd_tiles.cuh — which block walks which query rows and which keys, in the three ways of tiles.h.
#pragma once
#include "gpu/dependent_launch.cuh"
#include "gpu/tma.cuh"
#include "ops/attention/sm90/fwd.h"
#include "ops/attention/sm90/tiles.h"

namespace headroom::attention::sm90 {

struct Tile {
  int row, head, kv_head, batch;  // first query row
  int first, last;                // key tiles [first, last), at least one
  int key_end;                    // keys at or past this one are not seen
  int index;                      // the tile of query rows, counted over all heads
  int row_end, key_begin;         // Reach::listed: rows from row_end on belong to other tiles; key tiles are counted from key_begin
  int part, parts, first_block;   // parts: this block has part `part` of the row tile's keys; the first one is with block `first_block`
  __device__ bool none() const { return last == 0; }
};

template <class C, Reach reach>
__device__ int key_of(const Tile& t, int tile) {  // the first of a key tile
  return tile * C::keys + (reach == Reach::listed ? t.key_begin : 0);
}

template <class C>
struct Shared {
  using T = typename C::T;
  static constexpr bool stages_o = C::stages_o && C::way != Way::cluster;  // O passes through shared memory
  static constexpr int columns = columns_of<C>;
  T q[C::q_stages][C::consumers * 64 * columns];
  T o[stages_o ? C::consumers * 64 * columns : 512];
  T k[C::stages][C::keys * columns];
  T v[C::stages][C::keys * columns];
  // Where Q has one buffer, each group's half of it is fetched by itself, as soon as that group's last scores are there.
  static constexpr int q_parts = C::q_stages == 1 && C::way == Way::whole ? C::consumers : 1;
  Barrier q_full[C::q_stages * q_parts], q_empty[C::q_stages * q_parts], k_full[C::stages], k_empty[C::stages], v_full[C::stages],
      v_empty[C::stages], tile_full[2], tile_empty[2];
  Tile tile[2];  // the next ones
  int arrived[C::consumers];
  float lse[C::consumers * 64];  // this block's part
};

template <class C, Reach reach>
__device__ Tile tile_of(const ForwardArgs& a, int pair, int row_tile) {
  constexpr int rows = C::consumers * 64;
  Tile t;
  t.row = row_tile * rows, t.head = pair % a.heads, t.batch = pair / a.heads, t.kv_head = t.head / (a.heads / a.kv_heads);
  const KeyTiles keys = key_tiles<reach>(a, a.band, t.row, rows, C::keys);
  t.first = keys.first, t.last = keys.last, t.key_end = a.band.len_k;
  t.row_end = a.band.len_q, t.key_begin = 0, t.index = pair * a.row_tiles + row_tile, t.part = 0, t.parts = 1, t.first_block = 0;
  return t;
}

// Whole tiles of the first (batch, head) pairs, dealt in turn; where they differ in length, a long and a short one of a head together, or each by itself.
template <class C, Reach reach, class Publish>
__device__ void deal_in_turn(const ForwardArgs& a, Publish&& publish) {
  if (reach != Reach::all && a.longest_first) {
    const int blocks = gridDim.x, block = blockIdx.x;
    for (int round = 0; round * blocks < a.units; ++round) {
      const int unit = tile_in_turn(round, block, blocks);
      if (unit < a.units) publish(tile_of<C, reach>(a, unit % a.pairs_in_turn, a.row_tiles - 1 - unit / a.pairs_in_turn));
    }
    return;
  }
  const int half = a.row_tiles / 2, paired = reach == Reach::all ? 0 : half * a.pairs_in_turn;
  for (int unit = blockIdx.x; unit < a.units; unit += gridDim.x)
    if (reach == Reach::all) {
      publish(tile_of<C, reach>(a, unit / a.row_tiles, unit % a.row_tiles));
    } else if (unit < paired) {
      publish(tile_of<C, reach>(a, unit / half, a.row_tiles - 1 - unit % half));
      publish(tile_of<C, reach>(a, unit / half, unit % half));
    } else {
      publish(tile_of<C, reach>(a, unit - paired, half));
    }
}

// Tiles of the other pairs, handed out as blocks ask: first of as many heads together as have their keys in L2, then of the last ones. The longest tiles of
// such heads come first, so that what is left at the end is short. A block without a tile in turn owns its first one here: its readers take the first tile as there,
// and a block that starts late, because another stream's work held its multiprocessor, would find none left if it asked.
template <class C, Reach reach, class Ask, class Publish>
__device__ void deal_as_asked(const ForwardArgs& a, Ask&& ask, Publish&& publish) {
  const int swept = a.batch * a.heads - a.pairs_in_turn - a.pairs_last, owned = max(int(gridDim.x) - a.units, 0),
            mine = int(blockIdx.x) - a.units;
  for (int tile = mine >= 0 ? mine : owned + ask(); tile < a.tiles_asked; tile = owned + ask()) {
    const bool last = tile >= swept * a.row_tiles;
    const int first = last ? swept : tile / (a.heads_at_once * a.row_tiles) * a.heads_at_once;
    const int at_once = last ? a.pairs_last : min(a.heads_at_once, swept - first), at = tile - first * a.row_tiles;
    publish(tile_of<C, reach>(a, a.pairs_in_turn + first + at % at_once, a.row_tiles - 1 - at / at_once));
  }
}

// Tiles of documents, as blocks ask.
template <class C, class Ask, class Publish>
__device__ void deal_listed(const ForwardArgs& a, Ask&& ask, Publish&& publish) {
  for (int at = blockIdx.x;; at = int(gridDim.x) + ask()) {
    const DealtTile dealt = dealt_tile(a.listed, a.batch, a.heads, at, int(gridDim.x));
    if (dealt.batch == a.batch) return;
    Tile t;
    t.row = dealt.tile.first, t.row_end = dealt.tile.end, t.head = dealt.head, t.batch = dealt.batch,
    t.kv_head = t.head / (a.heads / a.kv_heads);
    t.first = 0, t.last = dealt.tile.steps, t.key_begin = dealt.tile.from, t.key_end = a.band.len_k;
    t.index = 0, t.part = 0, t.parts = 1, t.first_block = 0;
    publish(t);
  }
}

// All steps of all tiles lie in one line, and every block gets an even run of it, wherever that begins and ends.
template <class C, Reach reach, class Publish>
__device__ void deal_parts(const ForwardArgs& a, Publish&& publish) {
  const long long all = (long long)a.steps * a.batch * a.heads, blocks = gridDim.x;
  const long long from = all * blockIdx.x / blocks, to = all * (blockIdx.x + 1) / blocks;
  const auto block_at = [&](long long step) { return int(((step + 1) * blocks - 1) / all); };
  int pair = int(from / a.steps), row_tile = 0;
  for (long long at = (long long)pair * a.steps; at < to;) {
    Tile t = tile_of<C, reach>(a, pair, row_tile);
    const int count = t.last - t.first;
    if (at + count > from) {
      t.first_block = block_at(at), t.parts = block_at(at + count - 1) - t.first_block + 1, t.part = int(blockIdx.x) - t.first_block;
      const int begin = int(max(from - at, 0ll)), end = int(min(to - at, (long long)count));
      t.last = t.first + end, t.first += begin;
      publish(t);
    }
    at += count;
    if (++row_tile == a.row_tiles) row_tile = 0, ++pair;
  }
}

// One tile: the blocks of a cluster share its keys.
template <class C, Reach reach>
__device__ Tile tile_of_cluster(const ForwardArgs& a) {
  const int index = blockIdx.x / a.blocks_of_tile, part = blockIdx.x % a.blocks_of_tile;
  Tile t = tile_of<C, reach>(a, index / a.row_tiles, index % a.row_tiles);
  const int count = t.last - t.first, first = t.first;
  t.part = part, t.parts = a.blocks_of_tile;
  t.first = first + count * part / t.parts, t.last = first + count * (part + 1) / t.parts;
  if (t.first == t.last) ++t.last, t.key_end = 0;  // more blocks than key tiles: this one sees nothing
  return t;
}

// The scheduler, one thread: keeps the divisions off the critical path.
template <class C, Reach reach>
__device__ void schedule(const ForwardArgs& a, Shared<C>& s) {
  Turn<2> next;
  const auto publish = [&](const Tile& t) {
    s.tile_empty[next.stage].wait(next.parity ^ 1);
    s.tile[next.stage] = t;
    s.tile_full[next.stage].arrive();
    next.next();
  };
  if constexpr (C::way == Way::parts) {
    deal_parts<C, reach>(a, publish);
  } else {
    const auto ask = [&] {  // claims a tile only when every warp is at the one before it
      s.tile_empty[next.stage ^ 1].wait(next.parity ^ (next.stage == 0));
      return atomicAdd(a.next_tile, 1);
    };
    if constexpr (reach == Reach::listed) {
      deal_listed<C>(a, ask, publish);
    } else {
      deal_in_turn<C, reach>(a, publish);
      if (reach != Reach::all && a.tiles_asked > 0) deal_as_asked<C, reach>(a, ask, publish);
    }
  }
  publish(Tile{});
}

// A reader of what it publishes. Every lane of a warp reads and says so for itself.
template <class C, Reach reach>
struct Tiles {
  const ForwardArgs& a;
  Shared<C>& s;
  Turn<2> at = {};
  __device__ __forceinline__ Tile next() {
    if constexpr (C::way == Way::cluster) return at.stage++ == 0 ? tile_of_cluster<C, reach>(a) : Tile{};
    s.tile_full[at.stage].wait(at.parity);
    const Tile t = s.tile[at.stage];
    s.tile_empty[at.stage].arrive();
    at.next();
    return t;
  }
};

// A forward's block: its barriers, then one thread that fetches, one that schedules, and the groups that compute.
template <class C, Reach reach, class Produce, class Consume>
__device__ __forceinline__ void run_block(const ForwardArgs& a, Shared<C>& s, Produce&& produce, Consume&& consume) {
  // setmaxnreg deals only with what the block was launched with, and an increase beyond that waits for ever.
  constexpr int threads = (C::consumers + 1) * 128, launched = 65536 / threads / 8 * 8;
  static_assert(C::producer_registers + C::consumers * C::consumer_registers <= (C::consumers + 1) * launched);
  static_assert(sizeof(Shared<C>) <= 227 * 1024);
  if (threadIdx.x == 0) {
    constexpr int parts = Shared<C>::q_parts;
    for (int i = 0; i < C::q_stages * parts; ++i) s.q_full[i].init(1), s.q_empty[i].init(4 * C::consumers / parts);
    for (int i = 0; i < C::stages; ++i) {
      s.k_full[i].init(1), s.v_full[i].init(1);
      s.k_empty[i].init(4 * C::consumers), s.v_empty[i].init(4 * C::consumers);
    }
    for (int i = 0; i < 2; ++i) s.tile_full[i].init(1), s.tile_empty[i].init(128 * C::consumers + 1);
    barriers_ready();
  }
  __syncthreads();
  if constexpr (reach == Reach::listed) wait_for_earlier_kernels();  // the lists
  if (threadIdx.x < 128) {
    registers_down<C::producer_registers>();
    if (threadIdx.x == 0) produce();
    if (C::way != Way::cluster && threadIdx.x == 32) schedule<C, reach>(a, s);
  } else {
    registers_up<C::consumer_registers>();
    consume(threadIdx.x / 128 - 1);
  }
}

}  // namespace headroom::attention::sm90
