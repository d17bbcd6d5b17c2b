// What Hopper's persistent products share whose result is used on the chip: blocks in pairs, one warp that fetches operands into a ring of
// stages, eight that multiply and leave a tile of 128 rows in shared memory as 16-bit values, and others that use it under the next products.
#pragma once
#include "gpu/mma.cuh"
#include "gpu/tma.cuh"

namespace headroom {

constexpr int pair_blocks = 2;  // a cluster: blocks one above the other, which read the same B; each fetches half of it for both
constexpr int multipliers = 8;  // warps

template <int columns>
using LeftTile = char[2][columns / 64][panel_bytes(64)];  // one for each group of four multipliers: panels of 64 rows and 64 columns

template <int stages>
struct Rings {  // empty: of both blocks, which fetch for each other; out: the tile left, between multipliers and its users
  Barrier full[stages], empty[stages], out_full, out_empty;
};
struct Walker {  // through the tiles: this warp, which block of its cluster, its first tile and from one to the next
  int warp, rank, first, stride;
};
template <int stages>
__device__ __forceinline__ Walker set_up(Rings<stages>& s, int users) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; ++i) {
      s.full[i].init(1);
      s.empty[i].init(multipliers * pair_blocks);
    }
    s.out_full.init(multipliers * 32);
    s.out_empty.init(users * 32);
    barriers_ready();
  }
  cluster_meet();
  const int warp = same_in_warp(int(threadIdx.x) / 32);
  return {warp, int(blockIdx.x) % pair_blocks, int(blockIdx.x) / pair_blocks, int(gridDim.x) / pair_blocks};
}
// To both blocks, that this warp has read a stage: each fetches for both.
template <int stages>
__device__ __forceinline__ void release(Rings<stages>& s, int stage) {
  if (const int lane = threadIdx.x % 32; lane < pair_blocks) s.empty[stage].arrive_in(lane);
}

// d = A · B of one tile, by four warps for 64 of its rows: products(stage, first) starts those of a stage; first: they begin the sum.
template <int stages, int n, class Multiply>
__device__ __forceinline__ void multiply_steps(float (&d)[n], Rings<stages>& rings, Turn<stages>& turn, int steps, Multiply&& products) {
  int before = 0;
  for (int step = 0; step < steps; ++step, turn.next()) {
    rings.full[turn.stage].wait_awake(turn.parity);
    mma_fence();
    products(turn.stage, step == 0);
    mma_commit();
    mma_wait<1>();
    if (step > 0) release(rings, before);
    before = turn.stage;
  }
  mma_wait<0>();
  pin(d);
  release(rings, before);
}

// Rounded to T, as panels of 64 columns.
template <class T, int n>
__device__ __forceinline__ void leave(const float (&d)[n], char (&panels)[n / 32][panel_bytes(64)]) {
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
  for (int j = 0; j < n / 4; j += 2)
    store_blocks(panels[j / 8] + swizzled(row, j % 8 + lane / 16), pack<T>(d[4 * j], d[4 * j + 1]), pack<T>(d[4 * j + 2], d[4 * j + 3]),
                 pack<T>(d[4 * j + 4], d[4 * j + 5]), pack<T>(d[4 * j + 6], d[4 * j + 7]));
}

}  // namespace headroom
