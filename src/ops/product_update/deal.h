// How a launch's tiles are dealt to its clusters. Whole tiles go round in turns. Where the last round would leave many clusters idle, its tiles are
// shared: each is summed in parts, runs of its tokens, by several clusters at once. The cluster with a tile's last part waits for the others' sums, which
// come from earlier turns, adds them and updates the weight. Which parts there are follows from the shapes, so the bits are those of any number of clusters.
#pragma once

namespace headroom::product_update {

struct Part {            // a part of a tile's sum
  int tile, begin, end;  // steps of its tokens; past the last one for a tile as a whole

  constexpr bool any() const { return begin < end; }
};

struct Deal {
  int whole = 0, shared = 0;   // tiles, in this order
  int sharers = 0, steps = 0;  // all steps of the shared tiles are dealt to so many turns in equal runs; steps of one tile

  static constexpr int all_steps = 1 << 30;

  constexpr int turns() const { return whole + sharers; }
  constexpr int begin_of(int sharer) const { return sharer * shared * steps / sharers; }  // counted over all shared tiles
  // A turn's parts, of which the second may be none. What another turn waits for comes first.
  constexpr Part part(int turn, int which) const {
    if (turn < whole) return which == 0 ? Part{turn, 0, all_steps} : Part{};
    const int begin = begin_of(turn - whole), end = begin_of(turn - whole + 1), tile = begin / steps, edge = (tile + 1) * steps;
    const Part here{whole + tile, begin - tile * steps, (end < edge ? end : edge) - tile * steps};
    if (end <= edge) return which == 0 ? here : Part{};
    return which == 0 ? Part{whole + tile + 1, 0, end - edge} : here;
  }
  constexpr bool last_of_tile(const Part& p) const { return p.tile < whole || p.end == steps; }
  constexpr int completed(int turn) const {  // the tile that is summed when the turn is over, or -1
    if (turn < whole) return turn;
    const int tile = begin_of(turn - whole) / steps;
    return begin_of(turn - whole + 1) / steps > tile ? whole + tile : -1;
  }
  constexpr int completing(int turn, int stride) const {  // the first turn from there on that completes a tile; turns() or more: none
    while (turn < turns() && completed(turn) < 0) turn += stride;
    return turn;
  }
  constexpr int first_sharer(int tile) const {  // the first block that shares the tile; the others follow it
    return (((tile - whole) * steps + 1) * sharers - 1) / (shared * steps);
  }
};

}  // namespace headroom::product_update
