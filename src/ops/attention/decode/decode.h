// flash_decode, between its host side (decode_host.cpp) and its kernels (decode.cu).
//
// All pairs of a step of keys and a unit (sequence, key head, block of rows) are one line; every cluster of blocks walks an even run of it,
// whatever the sequences' lengths. Its blocks share each step's keys, and add up what they saw through each other's shared memory. Of a unit that several
// clusters share, each but the last leaves words in global memory; the last one waits for them and adds them up, in the order of the line.
#pragma once
#include <cuda_runtime_api.h>

#include "gpu/map.h"
#include "ops/attention/documents/documents.h"
#include "ops/attention/sm80/blocks.h"

namespace headroom::attention::decode {

using blocks::Paged;
using blocks::Strided;

// n / d for n below 2^31 by a multiplication.
struct Divisor {
  unsigned multiplier = 0;
  int shift = 0;
  static Divisor of(unsigned d) {
    int bits = 0;
    while (1ull << bits < d) ++bits;
    return {unsigned((1ull << (31 + bits)) / d + 1), 31 + bits};
  }
  HEADROOM_HD unsigned of_number(unsigned n) const { return unsigned((unsigned long long)n * multiplier >> shift); }
};

// Two sums of a row, or at the row's end its maximum and its sum of weights, written and read at once (16 bytes). A word is there once it carries the
// launch's number, so that no fence and no second word is needed. Nothing has to be zeroed before: unwritten memory holds the number with a chance
// of 2⁻⁶⁴. The reader of a word clears the number, for the next run of a recorded launch. Where a word speaks for plain sums beside it, both sides fence
// (heads.cuh).
struct alignas(16) Word {
  float x, y;
  std::uint64_t number;
};

struct Args {
  Strided q, k, v, o;  // paged: k and v are [pages, page, kv_heads, dim]
  float* lse;
  const float* sink;  // [heads]; null: none
  Paged paged;
  Divisor by_page;
  BandOf<int> band;         // without documents
  DocumentsArgs documents;  // count 0: none; its lists are not used
  int batch, heads, kv_heads, group, rows, row_blocks, head_dim, dim_v;
  float scale_log2;       // softmax scale · log2(e); capped: cap · log2(e)
  float to_cap;           // capped: softmax scale / cap; else 0
  float slack;            // how far a score may pass its row's reference: its weight is 2^8 then
  int cluster, clusters;  // blocks of a cluster; and how many of them there are
  int span;               // keys of a step, all blocks' of a cluster together
  Divisor by_span, by_units, by_steps, by_clusters, by_group, by_row_blocks;  // by_steps: of every sequence, where there are no documents
  bool early;                                                                 // launched so: from sm_90 on
  Word*
      words;  // two parts for each cluster [kept_rows, dim / 2 + 1]: of the unit that began before its run, and of the one that goes on after it
  int kept_rows;  // rows kept of a block of rows
  struct {
    bool apart;         // a dense cache: a block walks whole units, and not those that follow each other
    int batches, more;  // from one of its units to the next: whole sequences, and units beside them
  } units;
  std::uint64_t number;  // this launch's number; see Word
};

// A block of threads: rows of Q that it serves (of one key head), its warps, and its shared memory.
template <int head_dim, int row_count>
struct Shape {
  static constexpr bool clusters = true;  // a unit's keys may be shared by a cluster's blocks
  static constexpr bool one_ring = false;
  static constexpr int dim = head_dim, rows = row_count, tiles = rows <= 16 ? 1 : rows / 16, warps = rows == 8 ? 8 : 4;
  static constexpr int step_keys = 16 * warps;                                          // keys of a step that it takes
  static constexpr int slots = rows == 8 ? (dim == 64 ? 5 : 3) : (dim == 64 ? 12 : 6);  // tiles in a ring, each of keys or of values
  static constexpr int rows_at_once = rows == 8 ? 4 : 8;                                // rows of each warp's tile, where sums meet
  static constexpr int shared_bytes = slots * step_keys * dim * 2 + warps * rows_at_once * dim * 4 /* sums */ +
                                      2 * warps * rows_at_once * 8 /* maxima and sums of weights: of warps, of the block */ +
                                      (rows == 8 ? warps * slots * 8 : 0) /* barriers of boxes */;
};
constexpr int block_rows[] = {8, 16, 32, 64};
constexpr int dims[] = {64, 128, 256};

// A block of 8 rows for a dense cache (dense.cuh). The blocks of a multiprocessor have 192 KB of rings together.
template <int head_dim, int warp_count, int blocks>
struct DenseShape {
  static constexpr bool clusters = false, one_ring = false;
  static constexpr int dim = head_dim, rows = 8, tiles = 1, warps = warp_count, a_multiprocessor = blocks, step_keys = 16 * warps;
  static constexpr int slots = 6144 / (dim * warps * blocks), rows_at_once = 4;
  static constexpr int shared_bytes =
      slots * step_keys * dim * 2 + warps * rows_at_once * dim * 4 + 2 * warps * rows_at_once * 8;  // as of Shape
};

// A block whose warps are eight key heads of a dense cache, and one more that fetches for all (heads.cuh).
template <int head_dim>
struct HeadsShape {
  static constexpr bool clusters = false, one_ring = true;  // a slot of the ring has a tile of each warp
  static constexpr int dim = head_dim, rows = 8, tiles = 1, warps = 8, threads = (warps + 1) * 32, step_keys = 16, rows_at_once = 4,
                       most_parts = 16;  // blocks for each sequence
  static constexpr int slots = 384 / dim, slot_bytes = warps * step_keys * dim * 2;
  static constexpr int shared_bytes = slots * slot_bytes + warps * rows_at_once * dim * 4 + 2 * warps * rows_at_once * 8 /* as of Shape */ +
                                      2 * slots * 8 /* barriers: of what came, and of what was read */;
};

template <class T, class Shape>
void start(const Args&, cudaStream_t);
template <class T, class Shape>
void start_dense(const Args&, cudaStream_t);

// On Hopper, keys and values of 128 dimensions that lie in L2 come in boxes of 16 by the copy engine: 4 to 10 % faster than by threads. Narrower boxes and
// those from memory are slower (bench/lab/attention_decode.md).
constexpr int box_keys = 16;
struct BoxArgs {
  Args args;
  Map k, v;
};
template <class T, class Shape>
void start_boxes(const BoxArgs&, cudaStream_t);
template <class T, class Shape>
void start_heads(const BoxArgs&, cudaStream_t);  // boxes of 16 positions of eight heads

}  // namespace headroom::attention::decode
