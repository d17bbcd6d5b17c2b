// The backward on Hopper, between its host side (flash_sm90_bwd_host.cpp) and its instances, which are compiled file by file.
#pragma once
#include <cuda_runtime.h>

#include "gpu/map.h"

namespace headroom::attention::sm90::backward {

constexpr float log2e = 1.44269504f;
constexpr int unbounded = 1 << 29;

// Row i sees key j iff least <= i + shift - j <= most. Full: no bounds; causal: least = 0; window of w: and most = w - 1.
struct Sight {
  int len_q, len_k, shift, least, most;
  __host__ __device__ bool full() const { return least <= -unbounded && most >= unbounded; }
  __host__ __device__ int first_row(int key) const { return max_(0, key - shift + least); }
  __host__ __device__ int last_row(int key) const { return min_(len_q - 1, key - shift + most); }
  __host__ __device__ int first_key(int row) const { return max_(0, row + shift - most); }
  __host__ __device__ int last_key(int row) const { return min_(len_k - 1, row + shift - least); }
  static __host__ __device__ int max_(int a, int b) { return a > b ? a : b; }
  static __host__ __device__ int min_(int a, int b) { return a < b ? a : b; }
};

struct Strides {  // in elements; dimension head_dim is contiguous
  long long batch, row, head;
};

struct Args {
  Map q, k, v, dout;
  const float *lse, *minus_delta;  // [pairs, padded len_q, stat_at order]: LSE·log2e (+inf: the row sees nothing) and dLSE - rowsum(dO ∘ O)
  float* dq;                       // [pairs, query tiles, rows·dim] fp32, each half a tile in the order of the consumers' registers
  void *dk, *dv;
  Strides dk_strides, dv_strides;
  int* next_tile;  // zero at launch
  int* turns;      // ordered: [pairs, query tiles, 2], zero at launch
  Sight sight;
  int batch, heads, kv_heads, head_dim;
  float scale, scale_log2;
  int key_tiles, query_tiles, tiles;
  int heads_at_once;  // free and masked: this many (batch, kv head) pairs are swept together, longest key tiles first; ordered: run at the same time
  int together, spread;  // ordered: so many key tiles of a head run at the same time, every 2^spread-th
};

struct WideArgs {
  Map q, k, v, dout;  // boxes of the kernel at hand
  const float *lse, *minus_delta;
  void *dq, *dk, *dv;
  Strides dq_strides, dk_strides, dv_strides;
  int* next_tile;  // zero at launch
  Sight sight;
  int batch, heads, kv_heads, head_dim, padded;
  float scale, scale_log2;
  int tiles_per_head, tiles, heads_at_once;
};

struct PreArgs {
  const void *o, *dout;
  Strides o_strides, do_strides;
  const float *lse, *dlse;         // [pairs, len_q]; dlse may be null
  float *lse2, *minus_delta, *dq;  // dq null: nothing to zero
  int* zeros;                      // counters to set back
  int zero_count;
  int len_q, padded, heads, head_dim;
};

struct PostArgs {
  const float* dq;
  void* out;
  Strides strides;
  Sight sight;
  int heads, head_dim, query_tiles;
  float scale;
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
void start_before(const PreArgs&, int pairs, cudaStream_t);
template <class Tiles>
void start_after(const PostArgs&, int pairs, cudaStream_t);
void start_zero(const ZeroArgs&, int batch, int len, int heads, cudaStream_t);

}  // namespace headroom::attention::sm90::backward
