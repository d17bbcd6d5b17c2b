// The forward on Hopper, between its host side (flash_sm90.cu) and its instances, which are compiled file by file.
#pragma once
#include <cuda_runtime.h>

#include "gpu/map.h"

namespace headroom::attention::sm90 {

enum class Reach { all, causal, window };  // row i sees all keys, or keys ≤ i + high, or i + low … i + high

struct ForwardArgs {
  Map q, k, v, o;                    // (dim, len, heads, batch)
  void* o_data;                      // where O is written without TMA
  long long o_row, o_head, o_batch;  // its strides in elements
  float* lse;                        // [batch, heads, len_q], natural log; -inf where no key is seen
  int* arrivals;                     // when keys are split, per 64 rows: zero, and zero again afterwards
  float* partial_o;                  // [splits, tiles, rows, dim], when keys are split
  float* partial_lse;                // [splits, tiles, rows]
  int batch, heads, kv_heads, len_q, len_k, head_dim;
  int low, high;
  float scale_log2;  // softmax scale · log2(e)
  int row_tiles;     // of one head
  int splits;        // into how many parts a row's keys are dealt
  int units;         // what is dealt to the blocks: see dealt_units
};

// Where tiles of query rows differ in length, a long and a short one of the same head are dealt together: every unit costs the
// same, so nobody has to ask what is left, and a head's keys stay in L2. A middle one remains single, at the end.
constexpr long long dealt_units(Reach reach, int splits, long long row_tiles, long long pairs) {
  return reach == Reach::all || splits > 1 ? row_tiles * pairs * splits : (row_tiles + 1) / 2 * pairs;
}

template <class Tiles, Reach reach>  // a block per multiprocessor at most
void start_forward(const ForwardArgs&, int multiprocessors, cudaStream_t);

}  // namespace headroom::attention::sm90
