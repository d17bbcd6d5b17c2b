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
constexpr int tile_rows = 128, tile_columns = 256, depth = 64, stages = 3, threads = 384;  // a block's; depth: terms of a sum in a stage
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

// How a pass uses a tile. channels: of a tile; b_of: how B is stored.
struct ForwardPass {
  static constexpr int channels = tile_columns / 2;
  static constexpr Major b_of = Major::k;
};
struct BackwardPass {
  static constexpr int channels = tile_columns;
  static constexpr Major b_of = Major::mn;
};

struct Tile {
  int row, column;  // this block's; column: channel
};
// In bands of so many rows of tiles, one column after the other: what a card's blocks read at a time is about as high as it is wide, so L2 serves most of
// it. Without bands 32 768 rows were one column of 128 tiles, and A came from memory again for each column.
constexpr int band = 16;
template <class Pass>
__device__ __forceinline__ Tile tile_of(const Args& a, int number, int rank) {
  const int high = ceil_div(a.rows, tile_rows * pair_blocks), wide = ceil_div(a.width, Pass::channels);
  const int above = number / (band * wide) * band, in_band = number - above * wide, rows = min(band, high - above);
  return {((above + in_band % rows) * pair_blocks + rank) * tile_rows, in_band / rows * Pass::channels};
}

// ---- warp 0: a thread that fetches ---------------------------------------------------------------------------------
template <class Pass>
__device__ __forceinline__ void fetch(const Args& a, Shared& s, const Walker& walk) {
  const int rank = walk.rank;
  Turn<stages> turn;
  for (int number = walk.first; number < a.tiles; number += walk.stride) {
    const Tile t = tile_of<Pass>(a, number, rank);
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

// A worker's groups of n rows, tile after tile: of each tile every workers-th. Under the last tile the multipliers are workers, too.
template <int n>
struct Groups {
  const Args& a;
  int rank, stride, worker, number, workers, first;
  Tile tile;

  __device__ __forceinline__ Groups(const Args& a, const Walker& walk, int worker, int number)
      : a(a), rank(walk.rank), stride(walk.stride), worker(worker), number(number) {
    begin();
  }
  __device__ __forceinline__ bool more() const { return number < a.tiles; }
  __device__ __forceinline__ bool begins_tile() const { return first == worker * n; }
  __device__ __forceinline__ bool next() {  // false: that was the tile's last group
    first += workers * n;
    if (first < tile_rows) return true;
    number += stride;
    begin();
    return false;
  }

 private:
  __device__ __forceinline__ void begin() {
    first = worker * n;
    if (!more()) return;  // rows of the last tile again: fetched and not used
    tile = tile_of<BackwardPass>(a, number, rank);
    workers = number + stride < a.tiles ? users : users + multipliers;
  }
};

// Gate and up of the next two groups are on their way while one is used, also from one tile to the next: else each group waits for memory, and three
// warps take longer than the product of a tile whose sums are short.
template <int n, bool again>
__device__ __forceinline__ void make_gradients(const Args& a, const LeftTile<tile_columns>& out, Barrier& full, Barrier& empty,
                                               Groups<n> here, int parity) {
  static_assert(tile_rows % n == 0 && (users + multipliers) * n <= tile_rows, "each worker has a group in every tile");
  struct Rows {
    uint4 gate[n], up[n];
  };
  constexpr int deep = 3;
  Rows ring[deep];
  Groups<n> ahead = here;
  const auto column_of = [](const Tile& t) { return t.column + int(threadIdx.x) % 32 * 8; };
  const auto fetch = [&](Rows& rows) {
    const Tile& t = ahead.tile;
    const int last = min(tile_rows, a.rows - t.row) - 1, column = column_of(t);
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const char* const at = place(a.both, t.row + min(ahead.first + i, last), 4 * a.width, column < a.width ? column : 0);
      rows.gate[i] = *reinterpret_cast<const uint4*>(at);
      rows.up[i] = *reinterpret_cast<const uint4*>(at + 2 * a.width);
    }
    ahead.next();
  };
  const auto finish = [&](Rows& rows) {
    const Tile& t = here.tile;
    const int column = column_of(t);
    if (here.begins_tile()) full.wait(parity);
#pragma unroll
    for (int i = 0; i < n; ++i) {
      uint4 &gate = rows.gate[i], &up = rows.up[i];
      const int row = t.row + here.first + i;
      const bool wanted = column < a.width && row < a.rows;
      if constexpr (again) write(wanted, reinterpret_cast<bf16*>(place(a.half, row, 2 * a.width, column)), act_of(gate, up));
      gradients(gate, up, left_at(out, here.first + i, column - t.column));
      bf16* const at = reinterpret_cast<bf16*>(place(a.both, row, 4 * a.width, column));
      write(wanted, at, gate);
      write(wanted, at + a.width, up);
    }
    if (here.next()) return;
    parity ^= 1;
    if (here.worker < users) empty.arrive();  // every lane, for what it has read
  };
#pragma unroll
  for (int i = 0; i < deep - 1; ++i) fetch(ring[i]);
  for (;;) {
#pragma unroll
    for (int i = 0; i < deep; ++i) {
      fetch(ring[(i + deep - 1) % deep]);
      finish(ring[i]);
      if (!here.more()) return;
    }
  }
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
  const int worker = users + group * 4 + warp;
  if constexpr (std::is_same_v<Pass, ForwardPass>)
    make_act<n>(a, tile_of<Pass>(a, last, walk.rank), s.out, s.rings.out_full, worker, users + multipliers, parity);
  else
    make_gradients<n, again>(a, s.out, s.rings.out_full, s.rings.out_empty, Groups<n>(a, walk, worker, last), parity);
}

// ---- warps that do nothing but use tiles: of every tile their share ---------------------------------------------------
template <int n>
__device__ __forceinline__ void use_forward(const Args& a, Shared& s, const Walker& walk, int worker) {
  int parity = 0;
  for (int number = walk.first; number < a.tiles; number += walk.stride, parity ^= 1) {
    const Tile t = tile_of<ForwardPass>(a, number, walk.rank);
    const int workers = number + walk.stride < a.tiles ? users : users + multipliers;
    const bool stores = worker == 0 && threadIdx.x % 32 == 0;
    if (stores) {
      s.rings.out_full.wait(parity);
      store_gate_up(a, t, s.out);
    }
    __syncwarp();
    make_act<n>(a, t, s.out, s.rings.out_full, worker, workers, parity);
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
  } else if constexpr (std::is_same_v<Pass, ForwardPass>) {
    use_forward<n>(a, s, walk, walk.warp - 1);
  } else {
    make_gradients<n, again>(a, s.out, s.rings.out_full, s.rings.out_empty, Groups<n>(a, walk, walk.warp - 1, walk.first), 0);
  }
  __syncwarp();
  cluster_meet();  // no block exits while the other still sends
}

}  // namespace headroom::gated_product
