// What flash_simt and flash_sm80 share between host and kernels: both give a block of threads some rows, which stay in shared memory, and
// walk it over the tiles of the other side. Forward and dQ: rows are queries, the other side keys; dK and dV: the other way round.
#pragma once
#include <cuda_runtime_api.h>

#include "ops/attention/alibi.h"
#include "ops/attention/by_place.h"
#include "ops/attention/dropout.h"

namespace headroom::attention::blocks {

struct Strided {  // a tensor [batch, len, heads, dim], strides in elements
  void* data;
  long long batch, row, head;
};

struct Paged {       // keys and values, where they lie in pages
  const int* table;  // [batch, of_sequence]; null: they do not
  int of_sequence, size, count;
};

enum class Order {  // in which a grid goes through (tile of rows, batch and head): longest tiles first where they differ
  by_head,
  first_tiles_first,
  last_tiles_first
};

struct Deal {
  int tiles;  // one head's
  int pairs;  // batch · heads
  Order order;
};

struct ForwardArgs {
  Strided q, k, v, o;
  float* lse;
  const float* sink;  // [heads]; null: none
  Paged paged;
  BandOf<int> band;  // the batch's first row's
  Deal deal;
  int heads, group, head_dim, dim_v;
  float scale, cap;  // cap: 0 where scores are not capped
  bool wide;         // every row starts and ends on 16 bytes
  int* not_numbers;  // set if a sum is NaN (mend.h); null: not needed
  Dropout dropout;
  Alibi alibi;
};

enum class Wants { dq, dk_dv, dk, dv, all };  // what one kernel computes; all: parts of dQ are added as they come

struct BackwardArgs {
  Strided q, k, v, d_o, dq, dk, dv;
  const float *lse, *delta;  // [pairs, padded]: LSE·log2 e (+∞: the row sees nothing, or is none), rowsum(dO ∘ O) - dLSE
  BandOf<int> band;
  Deal deal;
  int heads, group, head_dim, dim_v, padded;
  float scale, cap;
  bool wide;
  int* not_numbers;
  Dropout dropout;
  Alibi alibi;
};

struct StatisticsArgs {
  Strided o, d_o;
  const float *lse, *dlse;  // [pairs, len_q]; dlse may be null
  float *lse_log2, *delta;
  int heads, dim_v, len_q, padded;
};

struct ZeroArgs {
  Strided to;
  int head_dim, len;
};

// A kernel is compiled for the plain question; for one that may ask more (a cap, a sink, documents, pages), whose answers cost registers; and for what
// depends on where a score is, in fewer shapes: for dropout, and for slopes of ALiBi, with dropout or without.
enum class Asks { plain, more, dropout, alibi };

namespace simt {
template <class Tiles, ByPlace by_place>
void start_forward(const ForwardArgs&, cudaStream_t);
template <class Tiles, Wants wants, ByPlace by_place>
void start_backward(const BackwardArgs&, cudaStream_t);
}  // namespace simt
namespace sm80 {
template <class Tiles, ByPlace by_place>
void start_forward(const ForwardArgs&, cudaStream_t);
template <class Tiles, Wants wants, ByPlace by_place>
void start_backward(const BackwardArgs&, cudaStream_t);
}  // namespace sm80
template <class T>
void start_statistics(const StatisticsArgs&, int pairs, cudaStream_t);
template <class T>
void start_zero(const ZeroArgs&, int batch, int heads, cudaStream_t);

// Shared memory. A row of `dim` elements takes 16 bytes more, so that eight rows' same columns lie in different banks.
template <class T>
constexpr int pitch(int dim) {
  return dim + 16 / int(sizeof(T));
}
template <class Tiles>
constexpr int rows_bytes() {
  using T = typename Tiles::T;
  return int(sizeof(T)) * (Tiles::turned ? Tiles::dim * pitch<T>(Tiles::rows) : Tiles::rows * pitch<T>(Tiles::dim));
}
template <class Tiles>
constexpr int tile_bytes() {
  return int(sizeof(typename Tiles::T)) * Tiles::columns * pitch<typename Tiles::T>(Tiles::dim);
}
template <class Tiles>
constexpr int forward_shared_bytes() {
  return rows_bytes<Tiles>() + 2 * tile_bytes<Tiles>() + Tiles::extra_bytes;
}
template <class Tiles>
constexpr int backward_shared_bytes() {
  return 2 * (rows_bytes<Tiles>() + tile_bytes<Tiles>()) + Tiles::extra_bytes;
}
template <class Tiles>
constexpr int fused_shared_bytes() {  // dS on its way from warp to warp; flash_simt has the place anyway
  using T = typename Tiles::T;
  return backward_shared_bytes<Tiles>() + (Tiles::extra_bytes ? 0 : Tiles::rows * pitch<T>(Tiles::columns) * int(sizeof(T)));
}

}  // namespace headroom::attention::blocks
