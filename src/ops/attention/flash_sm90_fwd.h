// The forward on Hopper, between its host side (flash_sm90_host.cpp) and its instances, which are compiled file by file.
#pragma once
#include <cuda_runtime.h>

#include "gpu/map.h"

namespace headroom::attention::sm90 {

enum class Reach { all, causal, window };  // row i sees all keys, or keys ≤ i + high, or i + low … i + high

struct ForwardArgs {
  Map q, k, v, o;                    // (dim, len, heads, batch); Way::cluster: q is (dim, packed, len, heads, batch)
  void* o_data;                      // where O is written without TMA
  long long o_row, o_head, o_batch;  // its strides in elements
  float* lse;                        // [batch, heads, len_q], natural log; -inf where no key is seen
  int* arrivals;                     // Way::parts: [row tiles, consumers], zero
  float4* partial_o;                 // Way::parts: two for each block, in the order of the registers
  float* partial_lse;                // Way::parts: the same, per row
  int batch, heads, kv_heads, len_q, len_k, head_dim;
  int low, high;
  float scale_log2;    // softmax scale · log2(e)
  int packed_log2;     // Way::cluster: 2^packed_log2 query heads of one key head lie side by side as rows and count as one head; else 0
  int rows;            // of one such head: len_q · 2^packed_log2
  int row_tiles;       // of one such head
  int steps;           // Way::parts: key tiles that all row tiles of one head walk, together
  int units;           // what is dealt to the blocks; Way::whole: see dealt_units
  int blocks_of_tile;  // Way::cluster
};

struct KeyTiles {
  int first, last;  // [first, last), at least one: a row tile that sees nothing walks one, wholly masked
};
__host__ __device__ inline KeyTiles key_tiles(const ForwardArgs& a, Reach reach, int row, int rows, int keys) {
  const auto least = [](int x, int y) { return x < y ? x : y; };
  const auto most = [](int x, int y) { return x < y ? y : x; };
  const int top = row >> a.packed_log2, bottom = (least(row + rows, a.rows) - 1) >> a.packed_log2;
  const int seen_first = reach == Reach::window ? least(most(top + a.low, 0), a.len_k) : 0;
  const int seen_end = reach == Reach::all ? a.len_k : least(most(bottom + 1 + a.high, 0), a.len_k);
  const int first = seen_first / keys;
  return {first, most(first + 1, (seen_end + keys - 1) / keys)};
}

// Where tiles of query rows differ in length, a long and a short one of the same head are dealt together: every unit costs the
// same, so nobody has to ask what is left, and a head's keys stay in L2. A middle one remains single, at the end.
constexpr long long dealt_units(Reach reach, long long row_tiles, long long pairs) {
  return reach == Reach::all ? row_tiles * pairs : (row_tiles + 1) / 2 * pairs;
}

template <class Tiles, Reach reach>  // a block per multiprocessor at most, except clusters: one for each tile of rows
void start_forward(const ForwardArgs&, int multiprocessors, cudaStream_t);

}  // namespace headroom::attention::sm90
