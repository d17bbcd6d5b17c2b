// bwd_order.cuh — which block has which keys, and in what order it meets the queries: freely, or so that dQ is always summed alike.
#pragma once
#include "ops/attention/sm90/bwd.h"
#include "ops/attention/sm90/tiles.h"

namespace headroom::attention::sm90::backward {

constexpr int keys = backward_keys;

struct Tile {
  int n, key, key_end;       // key tile, its first key; keys from key_end on belong to others
  int kv_head, batch;        // ordered: batch may lie past the end, there is nothing to do then
  int first, count;          // query tiles first … first+count-1 of each query head
  int plain_from, plain_to;  // plain_from … plain_to-1 see every key of the tile
  int start, stride;         // visited from first+start on, wrapping round
  int place;                 // ordered: n, or in heads walked from the end back the key tile it is the mirror image of
  bool backward;             // visited from the last one down
  int shift;                 // documents in the free order: query tile m begins at row m · rows + shift; else 0
};

// Whether blocks know all their tiles from the start. Else one counter hands them out.
template <class C, bool ordered>
constexpr bool from_list = !ordered && C::reach == Reach::listed;  // documents' tiles, which the loading thread looks up and hands over
template <class C, bool ordered>
__device__ __forceinline__ bool dealt(const Args& a) {
  return ordered && C::reach != Reach::listed && (C::dim != 64 || a.dealt);
}

template <class C, bool ordered>
__device__ __forceinline__ int first_row(const Tile& t, int m) {
  return from_list<C, ordered> ? m * C::rows + t.shift : m * C::rows;
}

// Free order: one counter hands out tiles, longest first.
// Ordered, lists: the same, from the last key tile of a head down. Whoever waits, waits for tiles that were handed out before its own.
// Ordered: the key tiles of a head add to a query tile one after another, and handing over takes about as long as a step at head dim 64. So every
// 2^spread-th key tile of a head runs at the same time and the others in later rounds; those that run together walk so that they come by 2^spread
// steps apart (full: query tiles / together steps) and no block waits. heads_at_once such sets fill the multiprocessors, whole rounds of them:
//   full     the j-th of them starts j strides in and wraps round
//   causal   in even heads a key tile starts at its diagonal; in odd heads it walks from the end back, and the block that had key tile i of the
//            even head takes the i-th longest's complement: every block has the same work
template <class C, bool ordered>
__device__ __forceinline__ Tile find_tile(const Args& a, int index) {
  if constexpr (from_list<C, ordered>) {
    const DealtPlace found = dealt_place(a.listed, a.batch, a.kv_heads, index, int(gridDim.x));
    DocumentTile tile{};
    RowsOfTile rows{};
    if (found.batch < a.batch) tile = a.listed.tiles[found.at], rows = a.listed.rows[found.at];
    return {.n = 0,
            .key = tile.first,
            .key_end = tile.end,
            .kv_head = found.head,
            .batch = found.batch,
            .first = tile.from,
            .count = tile.steps,
            .plain_from = rows.plain_from,
            .plain_to = rows.plain_to,
            .start = 0,
            .stride = 0,
            .place = 0,
            .backward = false,
            .shift = rows.shift};
  }
  const int pairs = a.batch * a.kv_heads;
  int n, pair, place = 0;
  bool backward = false;
  if (dealt<C, ordered>(a)) {
    const bool causal = a.band.reach == Reach::before;
    int round = index / gridDim.x;
    const int at = index - round * gridDim.x, set = at / a.together;
    if (causal) backward = round % 2, round /= 2;
    place = (at - set * a.together << a.spread) + (round & (1 << a.spread) - 1), n = backward ? a.key_tiles - 1 - place : place;
    pair = (round >> a.spread) * a.heads_at_once + set;
    if (causal) pair = 2 * pair + backward;
    if (place >= a.key_tiles) n = 0, pair = pairs;
  } else if (a.band.reach == Reach::all) {
    n = index % a.key_tiles, pair = index / a.key_tiles;
  } else {
    const int section = index / (a.heads_at_once * a.key_tiles), first = section * a.heads_at_once;
    const int at_once = min(a.heads_at_once, pairs - first), at = index - first * a.key_tiles;
    n = at / at_once, pair = first + at % at_once;
    if (ordered) n = a.key_tiles - 1 - n, place = n;
  }
  const TileSpan seen_by = band_in<C::reach>(a.band, pair / a.kv_heads).template row_tiles<C::reach>(n * keys, keys, C::rows);
  int count = pair >= pairs ? 0 : seen_by.end - seen_by.begin, start = 0, stride = 0;
  if (dealt<C, ordered>(a) && a.band.reach == Reach::all) stride = count / a.together, start = (place >> a.spread) * stride;
  if (!ordered && C::dim == 64 && a.band.reach == Reach::all) start = n % count;
  int visited = seen_by.begin;
  if constexpr (ordered && C::reach == Reach::listed) {
    const Visits visits = visits_of(band_in<C::reach>(a.band, pair / a.kv_heads), n, keys, C::rows);
    visited = visits.first, count = visits.count;
  }
  return {.n = n,
          .key = n * keys,
          .key_end = a.band.len_k,
          .kv_head = pair % a.kv_heads,
          .batch = pair / a.kv_heads,
          .first = visited,
          .count = count,
          .plain_from = seen_by.plain_begin,
          .plain_to = seen_by.plain_end,
          .start = start,
          .stride = stride,
          .place = place,
          .backward = backward,
          .shift = 0};
}

template <bool ordered>
struct Walk {  // over the steps of a tile: query heads, and the query tiles of each
  int head, left, in_head, count;
  int m, end, again;  // the query tile; at `end` it goes on at `again`
  bool backward;
  __device__ __forceinline__ Walk(const Args& a, const Tile& t) : count(t.count), backward(ordered && t.backward) {
    const int group = a.heads / a.kv_heads, bottom = t.first + t.count - 1;
    head = t.kv_head * group, left = group * count, in_head = count;
    end = backward ? t.first - 1 : bottom + 1, again = backward ? bottom : t.first, m = again + t.start;
  }
  __device__ __forceinline__ bool more() const { return left > 0; }
  __device__ __forceinline__ bool next() {  // true: a head begins
    --left, m += backward ? -1 : 1;
    if (m == end) m = again;
    if (--in_head > 0) return false;
    return in_head = count, ++head, true;
  }
};

// The fixed order in which key tiles add to a query tile: how many add before this one. Rounds follow each other. Within a round, first come
// tiles that begin nearest to the query tile (full), or those of a later place. Updated step by step: the sender is on the critical path.
template <class C>
struct Turns {
  const Args& a;
  const Tile& t;
  int before, gap, begun;  // full: how many come before here, steps to where the next one begins, and which that is
  __device__ __forceinline__ Turns(const Args& args, const Tile& tile) : a(args), t(tile) { begin_head(); }
  __device__ __forceinline__ int in_earlier_rounds(int end) const {  // how many of the places 0 … end-1
    const int round = t.place & (1 << a.spread) - 1;
    return (end >> a.spread) * round + min(end & (1 << a.spread) - 1, round);
  }
  __device__ __forceinline__ void begin_head() {
    const int j = t.place >> a.spread;
    before = in_earlier_rounds(a.key_tiles) + (t.stride == 0 ? j : 0), gap = t.stride, begun = j + 1;
  }
  __device__ __forceinline__ void step_to(int m) {
    if (a.band.reach != Reach::all || t.stride == 0) return;
    if (m == t.first) gap = 1, begun = 0;  // wrapped round
    if (--gap == 0 && (begun << a.spread) + (t.place & (1 << a.spread) - 1) < a.key_tiles) ++before, ++begun, gap = t.stride;
  }
  __device__ __forceinline__ int at(int m) const {
    if (a.band.reach == Reach::all) return before;
    const TileSpan sees = a.band.key_tiles<numbers>(m * C::rows, C::rows, keys);
    int low = sees.begin, high = sees.end - 1;
    if (t.backward) {
      const int mirrored = a.key_tiles - 1 - low;
      low = a.key_tiles - 1 - high, high = mirrored;
    }
    return (high - t.place >> a.spread) + in_earlier_rounds(high + 1) - in_earlier_rounds(low);
  }
};

// The same by lists (ListedTurns). Where lists are wrong a turn may never come: a sender's patience ends, and the result is undefined.
template <class C>
struct TurnsOfLists {
  ListedTurns turns;
  __device__ __forceinline__ TurnsOfLists(const Args& a, const Tile& t) : turns(band_in<C::reach>(a.band, t.batch), t.n, keys) {}
  __device__ __forceinline__ void begin_head() { turns.begin_head(); }
  __device__ __forceinline__ void step_to(int) {}
  __device__ __forceinline__ int at(int m) { return turns.before(m, C::rows); }
};
template <class C>
using TurnsFor = std::conditional_t<C::reach == Reach::listed, TurnsOfLists<C>, Turns<C>>;

}  // namespace headroom::attention::sm90::backward
