// flash_sm90_bwd_order.cuh — which block has which keys, and in what order it meets the queries: freely, or so that dQ is always summed alike.
#pragma once
#include "ops/attention/flash_sm90_bwd.h"
#include "ops/attention/tiles.h"

namespace headroom::attention::sm90::backward {

constexpr int keys = backward_keys;

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

// The order in which key tiles come by a query tile, made a rule: how many add to it before this one does. `together` key tiles run at once.
// Kept up step by step: whoever sends dQ off has little time.
template <class C>
struct Turns {
  const Args& a;
  const Tile& t;
  int base, group;         // of the key tiles that run together, counted as they are visited
  int before, gap, begun;  // full: how many come before here, steps to where the next one begins, and which that is
  __device__ __forceinline__ Turns(const Args& args, const Tile& tile) : a(args), t(tile) {
    const int i = t.backward ? a.key_tiles - 1 - t.n : t.n;
    base = i / a.together * a.together, group = min(a.together, a.key_tiles - base);
    begin_head();
  }
  __device__ __forceinline__ void begin_head() {
    before = t.stride == 0 ? t.n : base, gap = t.stride, begun = t.n - base + 1;  // those that begin nearest to a query tile come first
  }
  __device__ __forceinline__ void step_to(int m) {
    if (!a.sight.full() || t.stride == 0) return;
    if (m == t.first) gap = 1, begun = 0;  // wrapped round
    if (--gap == 0 && begun < group) ++before, ++begun, gap = t.stride;
  }
  __device__ __forceinline__ int at(int m) const {
    if (a.sight.full()) return before;
    const int low = a.sight.first_key(m * C::rows) / keys, high = a.sight.last_key(min(m * C::rows + C::rows, a.sight.len_q) - 1) / keys;
    if (t.backward) {
      const int top = a.key_tiles - 1 - base, bottom = top - group + 1;  // of this group; groups with larger n were before
      return max(0, high - top) + t.n - max(low, bottom);
    }
    return max(0, base - low) + min(high, base + group - 1) - t.n;
  }
};

}  // namespace headroom::attention::sm90::backward
