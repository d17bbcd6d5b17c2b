// bwd_wide.cuh — exact attention backward on Hopper for head dims up to 256, as two kernels without atomics: dK and dV, then dQ. Nothing is summed in global
// memory: deterministic, and no fp32 accumulator of dQ. The first keeps dS for the second, or else the second forms it again. Here is what they share.
#pragma once
#include "gpu/tma.cuh"
#include "ops/attention/sm90/bwd_rows.cuh"
#include "ops/attention/sm90/tiles.h"

namespace headroom::attention::sm90::backward {

struct Place {
  int tile, pair;
};
// Full: the tiles of one head follow each other. Otherwise `at_once` heads are swept together, longest tiles first.
__device__ __forceinline__ Place place(const WideArgs& a, int index, int pairs, bool longest_last) {
  if (a.band.reach == Reach::all) return {index % a.tiles_per_head, index / a.tiles_per_head};
  const int section = index / (a.heads_at_once * a.tiles_per_head), first = section * a.heads_at_once;
  const int at_once = min(a.heads_at_once, pairs - first), at = index - first * a.tiles_per_head;
  return {longest_last ? a.tiles_per_head - 1 - at / at_once : at / at_once, first + at % at_once};
}

template <class T, int dim>
__device__ __forceinline__ void load_panels(T* to, const Map& m, Barrier& full, int rows, int row, int head, int batch) {
  for (int p = 0; p < dim / 64; ++p)
    load(reinterpret_cast<char*>(to) + p * panel_bytes(rows), m, full, CachePolicy::normal, p * 64, row, head, batch);
}

// Documents whose dS is kept: the query heads of this range, counted through all rows of the batch.
struct QueryHeads {
  int first, end;
};
__device__ __forceinline__ QueryHeads heads_in_range(const WideArgs& a) {
  const KeptRange* range = a.kept_of_documents.ranges + a.kept_of_documents.range;
  return {range[0].first, range[1].first};
}

// The tile of a block that is next: documents' tiles are handed over as they are, others are known by their number.
template <class C>
struct Next {
  static constexpr bool listed = C::reach == Reach::listed;
  const WideArgs& a;
  const int heads;
  DealtTile dealt;
  int index;
  __device__ __forceinline__ Next(const WideArgs& args, int dealt_heads) : a(args), heads(dealt_heads), index(blockIdx.x) { look_up(); }
  __device__ __forceinline__ void look_up() {
    if constexpr (!listed) return;
    if constexpr (C::keeps) {  // key tiles of the pairs that have a query head in the range
      const QueryHeads in = heads_in_range(a);
      const int group = a.heads / heads, pairs = a.batch * heads;
      dealt =
          dealt_tile_of_pairs(a.listed, a.batch, heads, in.first / group, min((in.end + group - 1) / group, pairs), index, int(gridDim.x));
    } else {
      dealt = dealt_tile(a.listed, a.batch, heads, index, int(gridDim.x));
    }
    if (dealt.batch == a.batch) index = a.tiles;
  }
  __device__ __forceinline__ bool there() const { return index < a.tiles; }
};

struct Handover {  // the tile numbers of a block, from the producer to `readers` warps, of which every lane reads and says so for itself
  Barrier full[2], empty[2];
  int tile[2];
  DealtTile found[2];  // documents: what it is
  __device__ __forceinline__ void init(int readers) {
    for (int i = 0; i < 2; ++i) full[i].init(1), empty[i].init(32 * readers);
  }
  __device__ __forceinline__ void give(Turn<2>& at, int index, const DealtTile* dealt) {
    empty[at.stage].wait(at.parity ^ 1);
    tile[at.stage] = index;
    if (dealt) found[at.stage] = *dealt;
    full[at.stage].arrive(), at.next();
  }
  __device__ __forceinline__ int take(Turn<2>& at, DealtTile* dealt) {
    full[at.stage].wait(at.parity);
    const int index = tile[at.stage];
    if (dealt) *dealt = found[at.stage];
    empty[at.stage].arrive(), at.next();
    return index;
  }
};

}  // namespace headroom::attention::sm90::backward
