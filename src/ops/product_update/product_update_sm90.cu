// product_update_sm90 — dW = dYᵀ X on Hopper, then the weight's AdamW update: the gradient never leaves the chip, and the update's
// traffic overlaps the next tile's products. A launch has up to four weights, whose tiles are numbered consecutively.
//
// One block of 12 warps per multiprocessor; two blocks are a cluster over 256 x 256 of dW: 128 rows each, so that both read the same X and each
// fetches half of it for both. Warp 0 fetches, warps 4–11 multiply (64 x 256 each four), the other three update: the products leave the tile in
// shared memory as bf16 and go on with the next one. After the last tile all eleven update. Of a tile that clusters share (deal.h) each warp leaves its
// sums in global memory, and the same warp of the cluster that completes the tile adds them.
#include "base/divide.h"
#include "gpu/signal.cuh"
#include "ops/product_update/tile_update.cuh"

namespace headroom::product_update {

namespace {

using T = __nv_bfloat16;
constexpr int tile_m = 128, tile_n = 256, depth = 64, stages = 3, threads = 384;  // a block's; depth: tokens a stage
constexpr int updaters = 3, at_once = 2;  // warps; times two runs of weights that a lane updates together
constexpr int panel = panel_bytes(depth);
static_assert(tile_m * cluster == tile_side && tile_n == tile_side && depth == step_tokens && multipliers * cluster == warps_of_a_tile);
static_assert(tile_n / 2 * 32 == sums_of_a_warp);

struct Args : ArgsOf<Weight> {
  float* sums;  // the parts' sums, [sharer, warp of a tile, sum / 4, lane, sum % 4]
  int* ready;   // [sharer, warp of a tile]: whether they are there; 0 before and after a launch
};
using Tile = TileOf<Weight>;
__device__ __forceinline__ Tile tile_of(const Args& a, int number, int rank) { return tile_of<tile_m, tile_n>(a, number, rank); }

struct Shared {
  struct Stage {
    char dy[tile_m / 64 * panel], x[tile_n / 64 * panel];
  } stage[stages];
  Gradient<tile_n> out;
  Rings<stages> rings;
};

// Calls part(turn, p) for every part of this cluster, in order.
template <class Do>
__device__ __forceinline__ void each_part(const Deal& d, const Walker& walk, Do&& part) {
#pragma unroll 1
  for (int turn = walk.first; turn < d.turns(); turn += walk.stride)
#pragma unroll 1
    for (int which = 0; which < 2; ++which)
      if (const Part p = d.part(turn, which); p.any()) part(turn, p);
}
__device__ __forceinline__ int steps_until(const Part& p, const Tile& t) {  // tokens past the end arrive as zeros
  return min(p.end, ceil_div(t.w->tokens, depth));
}

// ---- warp 0: a thread that fetches ---------------------------------------------------------------------------------
// Cut: some weight's sides are no multiples of a tile. Then a box is one panel, and zeros lie past the last column.
template <bool Cut>
__device__ __forceinline__ void fetch(const Args& a, Shared& s, const Walker& walk) {
  const int rank = walk.rank;
  Turn<stages> turn;
  each_part(a.deal, walk, [&](int, const Part& p) {
    const Tile t = tile_of(a, p.tile, rank);
    const int end = steps_until(p, t);
    for (int step = p.begin; step < end; ++step, turn.next()) {
      const int token = step * depth;
      auto& stage = s.stage[turn.stage];
      Barrier& full = s.rings.full[turn.stage];
      s.rings.empty[turn.stage].wait(turn.parity ^ 1);  // in both blocks
      full.arrive_and_expect(sizeof stage);
      char* const x = stage.x + rank * 2 * panel;
      if constexpr (Cut) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          load(stage.dy + i * panel, t.w->dy, full, CachePolicy::normal, t.row + i * 64, token, 0);
          load_in_all(x + i * panel, t.w->x, full, CachePolicy::normal, 3, t.column + (rank * 2 + i) * 64, token, 0);
        }
      } else {
        load(stage.dy, t.w->dy, full, CachePolicy::normal, 0, token, t.row / 64);
        load_in_all(x, t.w->x, full, CachePolicy::normal, 3, 0, token, t.column / 64 + rank * 2);
      }
    }
  });
}

// ---- warps that multiply -------------------------------------------------------------------------------------------
// The sums of a part, from a warp to the same warp of another cluster. place: the warp's number among those of a tile.
__device__ __forceinline__ float4* sums_of(const Args& a, int sharer, int place) {
  return reinterpret_cast<float4*>(a.sums + std::int64_t(sharer * warps_of_a_tile + place) * sums_of_a_warp) + threadIdx.x % 32;
}
template <int n>
__device__ __forceinline__ void hand_on(const float (&d)[n], const Args& a, int sharer, int place) {
  float4* const to = sums_of(a, sharer, place);
#pragma unroll
  for (int i = 0; i < n / 4; ++i) __stcg(to + i * 32, make_float4(d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]));
  __syncwarp();
  if (threadIdx.x % 32 == 0) store_release(a.ready + sharer * warps_of_a_tile + place, 1);
}
template <int n>
__device__ __forceinline__ void add_earlier(float (&d)[n], const Args& a, int first, int sharer, int place) {
#pragma unroll 1
  for (int from = sharer - 1; from >= first; --from) {
    int* const ready = a.ready + from * warps_of_a_tile + place;
    while (read_acquire(ready) == 0) {}
    __syncwarp();
    if (threadIdx.x % 32 == 0) *ready = 0;
    const float4* const sums = sums_of(a, from, place);
#pragma unroll
    for (int i = 0; i < n / 4; ++i) {
      const float4 x = __ldcg(sums + i * 32);
      d[4 * i] += x.x, d[4 * i + 1] += x.y, d[4 * i + 2] += x.z, d[4 * i + 3] += x.w;
    }
  }
}

template <bool Cut, class Moments>
__device__ __forceinline__ void multiply(const Args& a, Shared& s, const Walker& walk, int group) {
  const int warp = threadIdx.x / 32 % 4, place = (walk.rank * 2 + group) * 4 + warp;
  const Descriptors words(&s);
  const auto offset = [&](const void* p) { return int(static_cast<const char*>(p) - reinterpret_cast<const char*>(&s)); };
  Turn<stages> turn;
  int parity = 1;
  Tile left{};  // the last tile in shared memory
  each_part(a.deal, walk, [&](int dealt, const Part& p) {
    const Tile t = tile_of(a, p.tile, walk.rank);
    float d[tile_n / 2];
    multiply_steps(d, s.rings, turn, steps_until(p, t) - p.begin, [&](int stage, bool first) {
      const int at = offset(s.stage) + stage * int(sizeof s.stage[0]);
#pragma unroll
      for (int i = 0; i < depth / 16; ++i)
        mma<T, Major::mn, Major::mn>(d, words.at(at + group * panel + mn_offset(i), panel),
                                     words.at(at + int(sizeof s.stage[0].dy) + mn_offset(i), panel), !first || i > 0);
    });
    const int sharer = dealt - a.deal.whole;
    if (!a.deal.last_of_tile(p)) return hand_on(d, a, sharer, place);
    if (p.begin > 0) add_earlier(d, a, a.deal.first_sharer(p.tile), sharer, place);
    s.rings.out_empty.wait(parity);
    leave<T>(d, s.out[group]);
    s.rings.out_full.arrive();  // every lane, for what it has stored
    left = t, parity ^= 1;
  });
  if (left.w)  // no products left: update too
    update<tile_n, at_once, Cut, Moments>(a.numbers, left, s.out, s.rings.out_full, updaters + group * 4 + warp, updaters + multipliers,
                                          parity);
}

// product_update_sm90 — of every weight: m, v and both halves of w, from the gradient dYᵀ X
//   reads   dY once per 256 columns, X once per 256 rows (through TMA); moments and halves once     writes  moments and halves
//   needs   sm_90a, sides that 8 divides (Cut: not all 256), tensors on 16 bytes; an even number of blocks, at most two for each tile of a cluster
//   numerics  FP32 sums over the tokens in order (a shared tile: of each part, then the parts from the last to the first), the gradient rounded to bf16,
//             the update to the bits of adamw_step; repeats bit for bit
//   limit   the tensor cores; the update's 24 bytes a weight (16 with moments in bf16, 12 in 8 bits) overlap them, except the last tile's
template <bool Cut, class Moments>
__global__ void __launch_bounds__(threads, 1) product_update_sm90(const __grid_constant__ Args a) {
  static_assert(sizeof(Shared) <= 227 * 1024);
  if (a.numbers->go == 0) return;  // nothing may change
  extern __shared__ __align__(1024) char memory[];
  auto& s = *reinterpret_cast<Shared*>(memory);
  const Walker walk = set_up(s.rings, updaters);
  if (walk.warp >= 4) {
    multiply<Cut, Moments>(a, s, walk, (walk.warp - 4) / 4);
  } else if (walk.warp == 0) {
    if (threadIdx.x == 0) fetch<Cut>(a, s, walk);
    __syncwarp();
  } else {
    update_tiles<tile_m, tile_n, at_once, Cut, Moments>(a, s.rings, s.out, walk, walk.warp - 1, updaters);
    __syncwarp();
  }
  cluster_meet();  // no block exits while the other still sends
}

// [tokens, columns] → (column of a panel, token, panel): two panels side by side in a box; cut: (column, token, 0), one panel.
Map map_of(const Tensor& t, bool cut) {
  const auto tokens = std::uint64_t(t.shape[0]), columns = std::uint64_t(t.shape[1]);
  if (cut)
    return make_map(t.data, MapType::bf16,
                    {.rank = 3, .dim = {columns, tokens, 1}, .stride = {1, columns, columns * tokens}, .box = {panel_columns, depth, 1}});
  return make_map(t.data, MapType::bf16,
                  {.rank = 3,
                   .dim = {panel_columns, tokens, columns / panel_columns},
                   .stride = {1, columns, panel_columns},
                   .box = {panel_columns, depth, 2}});
}

}  // namespace

void advance_sm90(std::span<const Item> all, const Deal& deal, const Tensor& numbers, const Tensor& sums, Context& ctx) {
  if (all.empty()) return;
  Args a{};
  a.numbers = numbers.as<adamw::Numbers>(), a.ready = ready_of(numbers), a.sums = sums.as<float>();
  const auto cut_at = [](const Tensor& w) { return w.shape[0] % (tile_m * cluster) != 0 || w.shape[1] % tile_n != 0; };
  const bool cut = std::any_of(all.begin(), all.end(), [&](const Item& i) { return cut_at(i.weight.copy); });
  for (const Item& i : all) add_weight<tile_m, tile_n>(a, Weight{.dy = map_of(i.dy, cut), .x = map_of(i.x, cut)}, i);
  a.deal = deal;
  const auto start = [&]<class Moments>(Moments) {
    launch_clusters(cut ? product_update_sm90<true, Moments> : product_update_sm90<false, Moments>, a, threads, sizeof(Shared), ctx);
  };
  const DType moments = all[0].weight.m.dtype;
  moments == DType::u8 ? start(EightBitMoments()) : moments == DType::bf16 ? start(HalfMoments()) : start(WholeMoments());
}

}  // namespace headroom::product_update
