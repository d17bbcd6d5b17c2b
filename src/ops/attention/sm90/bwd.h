// The backward on Hopper, between its host side (bwd_host.cpp) and its instances, which are compiled file by file.
#pragma once
#include <cuda_runtime.h>

#include <numbers>

#include "gpu/map.h"
#include "ops/attention/alibi.h"
#include "ops/attention/documents/document_tiles.h"
#include "ops/attention/dropout.h"
#include "ops/attention/sm90/bwd_kept.h"
#include "ops/attention/sm90/bwd_kept_documents.h"
#include "ops/attention/sm90/capping.h"
#include "ops/attention/sm90/listed.h"

namespace headroom::attention::sm90::backward {

constexpr float log2e = std::numbers::log2e_v<float>;
constexpr Reach numbers = Reach::run;  // right for every band but a listed one

struct Strides {  // in elements; dimension head_dim is contiguous
  long long batch, row, head;
};

// The kernel before: a block takes 16 rows of `heads` heads of a batch; a thread has 8 columns (a piece) of every `together`-th row.
constexpr int pre_rows = 16, pre_threads = 320;
struct PreShape {
  int pieces, together, heads, blocks;
};
constexpr PreShape pre_shape(int heads, int dim_v) {
  const int pieces = dim_v / 8, together = (pre_rows + pieces - 1) / pieces,  // a thread for each row of a head, or more
      most = pre_threads / (pieces * together), blocks = (heads + most - 1) / most;
  return {pieces, together, (heads + blocks - 1) / blocks, blocks};
}

// Past this |LSE|, probabilities computed from it are held to at most 1 (at_most_one); below, rounding cannot bring one that far above 1.
// Whether any row is past it is known only when the kernel before has run, which says so for each of its blocks: whole 16 bytes of them.
constexpr float far_lse = 1000;
struct Far {
  unsigned char* blocks;
  int count;  // blocks that are written; the next multiple of 16 is there
};
constexpr long long far_bytes(long long count) { return (count + 15) / 16 * 16; }

struct Args {
  Map q, k, v, dout;
  const float *lse, *minus_delta;  // [pairs, padded len_q, stat_at order]: LSE·log2e (+inf: the row sees nothing) and dLSE - rowsum(dO ∘ O)
  float* dq;                       // [pairs, query tiles, rows·dim] fp32, each half a tile in the order of the consumers' registers
  void *dk, *dv;
  Strides dk_strides, dv_strides;
  int* next_tile;  // zero at launch
  int* turns;      // ordered, and documents: [pairs, query tiles, 2], zero at launch
  Far far;
  BandOf<int> band;
  int batch, heads, kv_heads, head_dim, dim_v;
  float scale, scale_log2;  // capped: cap · log2(e)
  Capping capping;
  int key_tiles, query_tiles, tiles;
  DocumentTiles listed;  // documents in the free order: tiles of keys, no more than `tiles`; query tiles are their row tiles
  int heads_at_once;  // free and masked: this many (batch, kv head) pairs are swept together, longest key tiles first; dealt: run at the same time
  bool dealt;         // ordered: blocks know all their tiles from the start
  int together, spread;    // ordered: so many key tiles of a head run at the same time, every 2^spread-th
  int* not_numbers;        // Reach::listed: set where a sum is NaN (mend.h)
  Dropout dropout;         // ByPlace::dropout; then `scale`, of dK, contains its factor
  float of_delta;          // and Δ is taken times its inverse
  Alibi alibi;             // ByPlace::alibi
  float fall_by;           // from a fall to what it is in a product of q and k
  const float* turned_by;  // rope's table, by which dK is turned back; null: it is not
};

struct WideArgs {
  Map q, k, v, dout;  // boxes of the kernel at hand
  const float *lse, *minus_delta;
  void *dq, *dk, *dv;
  Strides dq_strides, dk_strides, dv_strides;
  int* next_tile;  // zero at launch
  Far far;
  BandOf<int> band;
  int batch, heads, kv_heads, head_dim, dim_v, padded;
  // One consumer hands P to the other in FP16, whose 11 bits begin to go below 6e-5. So in BF16 LSE·log2e is 8 less, and P, dS and all sums are 256 times
  // themselves, which the last factors take back.
  float one, scale, scale_dv, scale_log2;  // what stands for P = 1; of dQ and dK; of dV
  Capping capping;
  int tiles_per_head, tiles, heads_at_once;
  DocumentTiles listed;  // documents: tiles of what a block owns, no more than `tiles`
  int* not_numbers;
  Kept kept;
  KeptDocuments kept_of_documents;
};

struct ListKeptArgs {
  DocumentTiles keys;
  KeptDocuments to;
  int* finished;  // zero at launch: rows of the batch
};

struct PreArgs {
  const void *o, *dout;
  Strides o_strides, do_strides;
  const float *lse, *dlse;         // [pairs, len_q]; dlse may be null
  float *lse2, *minus_delta, *dq;  // dq null: nothing to zero
  int* zeros;                      // counters to set back
  int zero_count;
  Far far;
  int len_q, padded, heads, dim_v;
  float less;                // subtracted from LSE·log2e
  const RowTile* row_tiles;  // documents: the places of LSE, Δ and dq are rows of these; else null
  int of_tile;               // rows of one
};

struct PostArgs {
  const float* dq;
  const int* turns;  // [pairs, query tiles, 2]: how often was added to dq; null: not counted
  void* out;
  Strides strides;
  BandOf<int> band;
  int heads, head_dim, query_tiles;
  float scale;
  int* not_numbers;          // null: not needed
  const RowTile* row_tiles;  // documents: what dq holds; else null
  const float* turned_by;    // rope's table, by which dQ is turned back; null: it is not
};

struct ZeroArgs {  // a gradient of keys that no row sees, or of rows without a key
  void* out;
  Strides strides;
  int head_dim;
};

template <class Tiles, bool ordered>
void start_main(const Args&, int blocks, cudaStream_t);
template <class Tiles>
void start_dkdv(const WideArgs&, int blocks, cudaStream_t);
template <class Tiles>
void start_dq(const WideArgs&, int blocks, cudaStream_t);
template <class Tiles>
void start_dq_of_kept(const WideArgs&, int blocks, cudaStream_t);
void start_list_kept(const ListKeptArgs&, cudaStream_t);
template <class Tiles>
void start_before(const PreArgs&, int pairs, cudaStream_t);
template <class Tiles>
void start_after(const PostArgs&, int pairs, cudaStream_t);
void start_zero(const ZeroArgs&, int batch, int len, int heads, cudaStream_t);

}  // namespace headroom::attention::sm90::backward
