// SwiGLU made from a product's tile while the next tile's products run, on Hopper. Forward: a tile has gate and up of 128 channels; both go to
// memory by TMA, as bf16, and three warps make act of them. Backward: a tile is dact of 256 channels, which is never stored; three warps read gate
// and up and write their gradients in their place.
//
// One block of 12 warps per multiprocessor, in pairs (gpu/product_ring.cuh): warp 0 fetches, warps 4-11 multiply (64 x 256 each four), the other
// three use the tile that is left. Under the last tile all eleven use it.
#pragma once
#include <cuda_bf16.h>

#include "base/divide.h"
#include "gpu/product_ring.cuh"
#include "gpu/vec.cuh"
#include "ops/swiglu/element.cuh"

namespace headroom::gated_product {

using T = __nv_bfloat16;
constexpr int tile_rows = 128, tile_columns = 256, depth = 64, stages = 3, threads = 384;  // of a block; depth: of the sum, of a stage
constexpr int users = 3;                                                                   // warps that use the tile left

struct Shared {
  struct Stage {
    char a[panel_bytes(tile_rows)], b[panel_bytes(tile_columns)];
  } stage[stages];
  LeftTile<tile_columns> out;
  Rings<stages> rings;
};

struct Args {
  Map a, b, gate_up;     // gate_up: forward, written
  bf16 *half, *both;     // act, written, or null; backward: gate_up, overwritten
  int rows, width, sum;  // width: channels; sum: what is summed over
  int tiles;
};

struct Tile {
  int row, column;  // of this block; column: channel
};
template <int channels>  // of pairs: a column of tiles after the other, so that L2 serves B to all rows
__device__ __forceinline__ Tile tile_of(const Args& a, int number, int rank) {
  const int high = ceil_div(a.rows, tile_rows * pair_blocks);
  return {(number % high * pair_blocks + rank) * tile_rows, number / high * channels};
}

// How a pass uses a tile. channels: of a tile; b_of: how B is stored.
struct ForwardPass {
  static constexpr int channels = tile_columns / 2;
  static constexpr Major b_of = Major::k;
};
struct BackwardPass {
  static constexpr int channels = tile_columns;
  static constexpr Major b_of = Major::mn;
};

// ---- warp 0: a thread that fetches ---------------------------------------------------------------------------------
template <class Pass>
__device__ __forceinline__ void fetch(const Args& a, Shared& s, const Walker& walk) {
  const int rank = walk.rank;
  Turn<stages> turn;
  for (int number = walk.first; number < a.tiles; number += walk.stride) {
    const Tile t = tile_of<Pass::channels>(a, number, rank);
    for (int k = 0; k < a.sum; k += depth, turn.next()) {
      auto& stage = s.stage[turn.stage];
      Barrier& full = s.rings.full[turn.stage];
      s.rings.empty[turn.stage].wait(turn.parity ^ 1);  // in both blocks
      full.arrive_and_expect(sizeof stage);
      load(stage.a, a.a, full, CachePolicy::normal, k, t.row);
      if constexpr (Pass::b_of == Major::k) {  // one block fetches gate's rows, the other up's
        load_in_all(stage.b + rank * panel_bytes(Pass::channels), a.b, full, CachePolicy::normal, 3, k, t.column, rank);
      } else {
#pragma unroll
        for (int i = rank * 2; i < rank * 2 + 2; ++i)
          load_in_all(stage.b + i * panel_bytes(depth), a.b, full, CachePolicy::normal, 3, t.column + i * panel_columns, k, 0);
      }
    }
  }
}

// ---- what becomes of a tile ----------------------------------------------------------------------------------------
__device__ __forceinline__ float low(std::uint32_t two) { return __uint_as_float(two << 16); }
__device__ __forceinline__ float high(std::uint32_t two) { return __uint_as_float(two & 0xffff0000u); }
__device__ __forceinline__ std::uint32_t act_of(std::uint32_t gate, std::uint32_t up) {
  return pack<T>(swiglu::product_of<T>(low(gate), low(up)), swiglu::product_of<T>(high(gate), high(up)));
}
__device__ __forceinline__ uint4 act_of(const uint4& gate, const uint4& up) {
  return {act_of(gate.x, up.x), act_of(gate.y, up.y), act_of(gate.z, up.z), act_of(gate.w, up.w)};
}
__device__ __forceinline__ void gradients(std::uint32_t& gate, std::uint32_t& up, std::uint32_t dact) {
  const auto a = swiglu::gradient_of<T>(low(gate), low(up), low(dact)), b = swiglu::gradient_of<T>(high(gate), high(up), high(dact));
  gate = pack<T>(a.gate, b.gate);
  up = pack<T>(a.up, b.up);
}
__device__ __forceinline__ void gradients(uint4& gate, uint4& up, const uint4& dact) {
  gradients(gate.x, up.x, dact.x);
  gradients(gate.y, up.y, dact.y);
  gradients(gate.z, up.z, dact.z);
  gradients(gate.w, up.w, dact.w);
}
// Element (row, column) of a matrix with rows of so many bytes.
__device__ __forceinline__ char* place(bf16* matrix, int row, int row_bytes, int column) {
  return reinterpret_cast<char*>(matrix + column) + std::int64_t(row) * row_bytes;
}

// Eight neighbours, if they are inside; without a branch, so that the arithmetic of several rows interleaves.
__device__ __forceinline__ void write(bool inside, bf16* at, const uint4& x) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %5, 0; @p st.global.v4.b32 [%0], {%1,%2,%3,%4};}" ::"l"(at), "r"(x.x), "r"(x.y), "r"(x.z),
               "r"(x.w), "r"(std::uint32_t(inside))
               : "memory");
}
// Eight neighbours of the tile left.
__device__ __forceinline__ uint4 left_at(const LeftTile<tile_columns>& out, int row, int column) {
  return *reinterpret_cast<const uint4*>(out[row / 64][column / 64] + swizzled(row % 64, column % 64 / 8));
}

// Every workers-th of the tile's groups of rows: act of the gate and up left.
template <int n>
__device__ __forceinline__ void make_act(const Args& a, const Tile& t, const LeftTile<tile_columns>& out, Barrier& full, int worker,
                                         int workers, int parity) {
  constexpr int channels = ForwardPass::channels;
  const int lane = threadIdx.x % 32, column = lane % 16 * 8;
  full.wait(parity);
  if (a.half == nullptr || t.column + column >= a.width) return;
#pragma unroll 1
  for (int first = worker * 2 * n; first < tile_rows; first += workers * 2 * n) {
    uint4 act[n];
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const int row = first + i * 2 + lane / 16;
      act[i] = act_of(left_at(out, row, column), left_at(out, row, channels + column));
    }
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const int row = t.row + first + i * 2 + lane / 16;
      write(row < a.rows, reinterpret_cast<bf16*>(place(a.half, row, 2 * a.width, t.column + column)), act[i]);
    }
  }
}
// By one thread: gate and up of the tile left go to memory.
__device__ __forceinline__ void store_gate_up(const Args& a, const Tile& t, const LeftTile<tile_columns>& out) {
#pragma unroll
  for (int i = 0; i < 8; ++i) store(a.gate_up, out[i / 4][i % 4], t.column + i % 2 * panel_columns, t.row + i / 4 * 64, i % 4 / 2);
  store_commit();
}

// Every workers-th of the tile's groups of rows: the gradients of gate and up, the next group fetched while one is used.
template <int n, bool again>
__device__ __forceinline__ void make_gradients(const Args& a, const Tile& t, const LeftTile<tile_columns>& out, Barrier& full, int worker,
                                               int workers, int parity) {
  const int column = threadIdx.x % 32 * 8, last = min(tile_rows, a.rows - t.row) - 1, step = workers * n;
  const bool inside = t.column + column < a.width;
  const int from = inside ? t.column + column : 0;
  struct Rows {
    uint4 gate[n], up[n];
  } now, next;
  const auto fetch = [&](Rows& rows, int first) {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const char* const at = place(a.both, t.row + min(first + i, last), 4 * a.width, from);
      rows.gate[i] = *reinterpret_cast<const uint4*>(at);
      rows.up[i] = *reinterpret_cast<const uint4*>(at + 2 * a.width);
    }
  };
  int first = worker * n;
  const auto finish = [&](Rows& rows, Rows& behind) {  // false: it was the last
    fetch(behind, first + step);
#pragma unroll
    for (int i = 0; i < n; ++i) {
      uint4 &gate = rows.gate[i], &up = rows.up[i];
      const bool wanted = inside && first + i <= last;
      if constexpr (again) write(wanted, reinterpret_cast<bf16*>(place(a.half, t.row + first + i, 2 * a.width, from)), act_of(gate, up));
      gradients(gate, up, left_at(out, first + i, column));
      bf16* const at = reinterpret_cast<bf16*>(place(a.both, t.row + first + i, 4 * a.width, from));
      write(wanted, at, gate);
      write(wanted, at + a.width, up);
    }
    return (first += step) < tile_rows;
  };
  fetch(now, first);
  full.wait(parity);
  while (finish(now, next) && finish(next, now)) {}
}

template <class Pass, int n, bool again>
__device__ __forceinline__ void use(const Args& a, const Tile& t, Shared& s, int worker, int workers, int parity) {
  if constexpr (std::is_same_v<Pass, ForwardPass>)
    make_act<n>(a, t, s.out, s.rings.out_full, worker, workers, parity);
  else
    make_gradients<n, again>(a, t, s.out, s.rings.out_full, worker, workers, parity);
}

// ---- warps that multiply -------------------------------------------------------------------------------------------
template <class Pass, int n, bool again>
__device__ __forceinline__ void multiply(const Args& a, Shared& s, const Walker& walk, int group) {
  const Descriptors words(&s);
  const auto offset = [&](const void* p) { return int(static_cast<const char*>(p) - reinterpret_cast<const char*>(&s)); };
  const int steps = ceil_div(a.sum, depth);  // zeros past the end
  Turn<stages> turn;
  int parity = 1, last = 0;
  for (int number = walk.first; number < a.tiles; number += walk.stride, parity ^= 1) {
    last = number;
    float d[tile_columns / 2];
    multiply_steps(d, s.rings, turn, steps, [&](int stage, bool first) {
      const int at = offset(s.stage) + stage * int(sizeof s.stage[0]), b = at + int(sizeof s.stage[0].a);
#pragma unroll
      for (int i = 0; i < depth / 16; ++i) {
        const std::uint64_t left = words.at(at + group * panel_bytes(64) + k_offset(tile_rows, i));
        const std::uint64_t right =
            Pass::b_of == Major::k ? words.at(b + k_offset(tile_columns, i)) : words.at(b + mn_offset(i), panel_bytes(depth));
        mma<T, Major::k, Pass::b_of>(d, left, right, !first || i > 0);
      }
    });
    s.rings.out_empty.wait(parity);
    leave<T>(d, s.out[group]);
    if constexpr (std::is_same_v<Pass, ForwardPass>) proxy_fence();  // TMA reads it
    s.rings.out_full.arrive();                                       // every lane, for what it has stored
  }
  const int warp = threadIdx.x / 32 % 4;  // no products left: use the tile too
  use<Pass, n, again>(a, tile_of<Pass::channels>(a, last, walk.rank), s, users + group * 4 + warp, users + multipliers, parity);
}

// A warp that does nothing else: of every tile its share.
template <class Pass, int n, bool again>
__device__ __forceinline__ void use_tiles(const Args& a, Shared& s, const Walker& walk, int worker) {
  int parity = 0;
  for (int number = walk.first; number < a.tiles; number += walk.stride, parity ^= 1) {
    const Tile t = tile_of<Pass::channels>(a, number, walk.rank);
    const int workers = number + walk.stride >= a.tiles ? users + multipliers : users;
    const bool stores = std::is_same_v<Pass, ForwardPass> && worker == 0 && threadIdx.x % 32 == 0;
    if (stores) {
      s.rings.out_full.wait(parity);
      store_gate_up(a, t, s.out);
    }
    __syncwarp();
    use<Pass, n, again>(a, t, s, worker, workers, parity);
    if (stores) store_wait_read<0>();
    s.rings.out_empty.arrive();  // every lane, for what it has read
  }
}

template <class Pass, int n, bool again>
__device__ __forceinline__ void run(const Args& a) {
  static_assert(sizeof(Shared) <= 227 * 1024);
  extern __shared__ __align__(1024) char memory[];
  auto& s = *reinterpret_cast<Shared*>(memory);
  const Walker walk = set_up(s.rings, users);
  if (walk.warp >= 4) {
    multiply<Pass, n, again>(a, s, walk, (walk.warp - 4) / 4);
  } else if (walk.warp == 0) {
    if (threadIdx.x == 0) fetch<Pass>(a, s, walk);
  } else {
    use_tiles<Pass, n, again>(a, s, walk, walk.warp - 1);
  }
  __syncwarp();
  cluster_meet();  // no block exits while the other still sends
}

}  // namespace headroom::gated_product
