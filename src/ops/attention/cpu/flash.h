// flash on the CPU, between its planner (flash.cpp: scratch and which worker does what) and its kernels (flash_forward.cpp and
// flash_backward.cpp: one compiled body per instruction set, the best one taken at run time).
#pragma once
#include "base/divide.h"
#include "ops/attention/alibi.h"
#include "ops/attention/attention.h"
#include "ops/attention/dropout.h"

namespace headroom::attention::flash_cpu {

// Tile sizes and why. A block is as many rows as the register kernel is wide (32 with AVX-512, 16 with AVX2). A block's scores,
// keys_per_tile × block × 4 bytes, are 16 KiB with AVX-512 and stay in a 32 KiB L1 from the first product through softmax to the
// second. The widened K and V tile, 2 · 128 · 80 · 4 = 80 KiB at dim 64, is shared by the four blocks of a query tile and stays in L2.
constexpr std::int64_t keys_per_tile = 128;     // forward; 64 is as fast, and twice the bookkeeping
constexpr std::int64_t queries_per_tile = 128;  // forward: a piece of work. 64 cost 3.5 % more in widening K and V again
constexpr std::int64_t keys_per_strip = 64;     // backward: K, V, dK and dV of a strip, turned, are 80 KiB at dim 64
constexpr std::int64_t queries_per_step = 64;   // backward: so many rows of Q and dO are widened at a time

constexpr std::int64_t padded(std::int64_t dim) { return round_up(dim, 16); }  // whole vectors, whole register blocks
// The pitch of rows in scratch is an odd multiple of a cache line. At a power of two, one column of a tile would fall into a few sets of L1
// (at dim 128: 8 of 64) and push itself out.
constexpr std::int64_t pitch_of(std::int64_t dim) { return padded(dim) % 32 ? padded(dim) : padded(dim) + 16; }

struct Rows {  // one head of one batch entry: row i starts at data + i · stride elements
  void* data;
  std::int64_t stride;
};
inline Rows rows_of(const Tensor& t, std::int64_t b, std::int64_t head) {
  return {t.as<std::byte>() + (b * t.stride[0] + head * t.stride[2]) * std::int64_t(size_of(t.dtype)), t.stride[1]};
}

struct ForwardTile {  // query rows [row, row + queries_per_tile) of one head
  const Problem& problem;
  const Forward& tensors;
  const Band& band;          // for row b of the batch
  const Dropping* dropping;  // null: the problem has no dropout
  const Alibi& alibi;
  std::int64_t b, head, row;
  float* scratch;  // forward_scratch(…) floats, 64-byte aligned
};
std::int64_t forward_scratch(const Problem&);
void forward_tile(const ForwardTile&);

struct BackwardStrip {  // keys [key, key + keys_per_strip) against every query of every head that reads them
  const Problem& problem;
  const Backward& tensors;
  const Band& band;
  const Dropping* dropping;
  const Alibi& alibi;
  std::int64_t b, kv_head, key;
  const float* delta;  // [batch, heads, len_q]: Σ_d dO·O − dLSE
  const Tensor& dq;    // FP32 [batch, len_q, heads, dim], added to; rows may be written up to a whole vector
  float* scratch;      // backward_scratch(…) floats, 64-byte aligned
};
std::int64_t backward_scratch(const Problem&);
void backward_strip(const BackwardStrip&);

}  // namespace headroom::attention::flash_cpu
