// The forward on Hopper, between its host side (fwd_host.cpp) and its instances, which are compiled file by file.
#pragma once
#include <cuda_runtime.h>

#include "gpu/map.h"
#include "ops/attention/alibi.h"
#include "ops/attention/documents/document_tiles.h"
#include "ops/attention/dropout.h"
#include "ops/attention/sm90/capping.h"
#include "ops/attention/sm90/listed.h"

namespace headroom::attention::sm90 {

constexpr float widest_dropout = 0.96875f;  // kernels compare draws as FP16, in which larger chances are NaNs

struct ForwardArgs {
  Map q, k, v, o;                    // (dim, len, heads, batch); Way::cluster: q is (dim, packed, len, heads, batch)
  void* o_data;                      // where O is written without TMA
  long long o_row, o_head, o_batch;  // its strides in elements
  float* lse;                        // [batch, heads, len_q], natural log; -inf where no key is seen
  int* arrivals;                     // Way::parts: [row tiles, consumers], zero
  int* next_tile;      // Way::whole: counts the tiles that are handed out as blocks ask for them, from 0; null: there are none
  const float* sink;   // [heads]; null: none
  float4* partial_o;   // Way::parts: two for each block, in the order of the registers
  float* partial_lse;  // Way::parts: the same, per row
  BandOf<int> band;
  int batch, heads, kv_heads, head_dim, dim_v;
  float scale_log2;  // softmax scale · log2(e); capped: cap · log2(e)
  Capping capping;
  int packed_log2;       // Way::cluster: 2^packed_log2 query heads of one key head lie side by side as rows and count as one head; else 0
  int rows;              // rows of one such head: len_q · 2^packed_log2
  int row_tiles;         // row tiles of one such head
  int steps;             // Way::parts: key tiles that all row tiles of one head walk, together
  int units;             // what is dealt to the blocks; Way::whole: in turn, see dealt_units
  int pairs_in_turn;     // Way::whole: so many (batch, head) pairs are dealt in turn, the others as blocks ask
  bool longest_first;    // in turn: one tile after another, the longest first, there and back over the blocks; else in pairs
  int tiles_asked;       // tiles of those others
  DocumentTiles listed;  // Reach::listed: these, as blocks ask for them
  int heads_at_once;     // pairs that are swept together, longest tiles first;
  int pairs_last;        // at the end, so many
  int blocks_of_tile;    // Way::cluster
  int* not_numbers;      // Reach::listed: set where a sum is NaN (mend.h)
  Dropout dropout;       // ByPlace::dropout
  Alibi alibi;           // ByPlace::alibi
  float fall_by;         // from a fall to what it is in a product of q and k
};

struct KeyTiles {
  int first, last;  // [first, last), at least one: a row tile that sees nothing walks one, wholly masked
};
template <Reach reach = Reach::any>
__host__ __device__ inline KeyTiles key_tiles(const ForwardArgs& a, const BandOf<int>& band, int row, int rows, int keys) {
  const int end = row + rows < a.rows ? row + rows : a.rows;
  const TileSpan seen = band.keys_between<reach>(row >> a.packed_log2, (end - 1) >> a.packed_log2, keys);
  return {seen.begin, seen.end > seen.begin ? seen.end : seen.begin + 1};
}

// Where tiles of query rows differ in length, a long and a short one of the same head are dealt together: every unit costs the
// same, so no block has to ask what is left, and a head's keys stay in L2. A middle one remains single, at the end.
constexpr long long dealt_units(Reach reach, long long row_tiles, long long pairs) {
  return reach == Reach::all ? row_tiles * pairs : (row_tiles + 1) / 2 * pairs;
}

// ForwardArgs::longest_first: which tile a block has in a round, there and back.
__host__ __device__ inline int tile_in_turn(int round, int block, int blocks) {
  return round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
}

// Sinks go to the kernels of windows and of lists, which are right for every mask: their arithmetic at a tile's end alone makes ptxas take the softmax of a
// step in another order, and full attention was 4–5 % slower at head dim 128, 1–2 % at 64 (H200, 2026-11-22).
template <Reach reach>
constexpr bool knows_sinks = reach == Reach::run || reach == Reach::listed;

template <class Tiles, Reach reach, bool capped = false>  // a block per multiprocessor at most, except clusters: one for each tile of rows
void start_forward(const ForwardArgs&, int multiprocessors, cudaStream_t);

}  // namespace headroom::attention::sm90
