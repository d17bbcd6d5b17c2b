// flash on the CPU, between its planner (flash_cpu.cpp: scratch and who does what) and its kernels (flash_cpu_forward.cpp and
// flash_cpu_backward.cpp: one compiled body per instruction set, the best one taken at run time). Nobody else includes this.
#pragma once
#include "ops/attention/attention.h"

namespace headroom::attention::flash_cpu {

// Tile sizes and why. A block is as many rows as a register kernel is wide (32 with AVX-512, 16 with AVX2). A block's scores,
// block × keys_per_tile × 4 = 16 KiB with AVX-512, and a key or value row set stay in a 32 KiB L1 while the block runs; the widened
// K and V tile, 2 · 128 · dim · 4 = 64 KiB at dim 64, is shared by all blocks of a query tile and stays in L2.
constexpr std::int64_t keys_per_tile = 128;    // forward
constexpr std::int64_t queries_per_tile = 64;  // forward: a piece of work; enough to repay widening K and V (2 %)
constexpr std::int64_t keys_per_strip = 64;    // backward: dK and dV of a strip are gathered in L2
constexpr std::int64_t queries_per_step = 64;  // backward: so many rows of Q and dO are widened at a time

constexpr std::int64_t rounded(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }
constexpr std::int64_t padded(std::int64_t dim) { return rounded(dim, 16); }  // a whole vector, a whole register block

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
  std::int64_t b, head, row;
  float* scratch;  // forward_scratch(dim) floats, 64-byte aligned
};
std::int64_t forward_scratch(std::int64_t dim);
void forward_tile(const ForwardTile&);

struct BackwardStrip {  // keys [key, key + keys_per_strip) against every query of every head that reads them
  const Problem& problem;
  const Backward& tensors;
  std::int64_t b, kv_head, key;
  const float* delta;  // [batch, heads, len_q]: Σ_d dO·O − dLSE
  const Tensor& dq;    // FP32 [batch, len_q, heads, dim], added to; rows may be written up to a whole vector
  float* scratch;      // backward_scratch(dim) floats, 64-byte aligned
};
std::int64_t backward_scratch(std::int64_t dim);
void backward_strip(const BackwardStrip&);

}  // namespace headroom::attention::flash_cpu
