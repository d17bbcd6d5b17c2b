// product_update_fp8_sm90 — product_update_sm90 of 8-bit operands with scales: dW = dYᵀ X in two-level sums, then the weight's AdamW update.
//
// Both operands are stored with the tokens contiguous. A multiplier has 64 rows of X and all of the tile's of dY, so that a row's scale is one of two
// numbers of a thread and dY's 128 x 128 scale is one number for all; the gradient is transposed on its way to shared memory. Every 128 tokens the
// unit's sum is scaled and added to an FP32 one: while one group of multipliers adds, the other's products run.
// Warp 0 of 16 fetches, 1–7 update and 8–15 multiply (each four 64 x 128). With three warps that update, as in bf16, it is 5 % slower (H200, 2026-11-22).
#include <cuda_fp8.h>

#include "base/divide.h"
#include "gpu/byte_map.h"
#include "gpu/mma_fp8.cuh"
#include "ops/product_update/tile_update.cuh"

namespace headroom::product_update {

namespace {

constexpr int side = 128, depth = int(scale_block), stages = 5, threads = 512;  // a block's tile is side x side; depth: tokens of a stage
constexpr int updaters = 7, at_once = 1;  // warps; times two runs of weights that a lane updates together
constexpr int registers_of_updaters = 96, registers_of_multipliers = 160;
static_assert(depth == 128);  // a panel of 8-bit numbers

struct ScaledWeight : Weight {
  const float *dy_scale, *x_scale;
  int dy_scale_step,
      x_scale_step;  // by block and by run: from one 128 of dY's rows, and from one 128 of tokens, to the next; else from row to row
};
using Args = ArgsOf<ScaledWeight>;
using Tile = TileOf<ScaledWeight>;
__device__ __forceinline__ Tile tile_of(const Args& a, int number, int rank) { return tile_of<side, side>(a, number, rank); }

struct Shared {
  struct Stage {
    char dy[side * depth], x[side * depth];
  } stage[stages];
  Gradient<side> out;
  float x_scale[stages][side];
  Barrier x_scale_read[stages];  // every lane that multiplies says so for itself
  Rings<stages> rings;
};

// ---- warp 0: a thread that fetches ---------------------------------------------------------------------------------
template <bool along_tokens>
__device__ __forceinline__ void fetch(const Args& a, Shared& s, const Walker& walk) {
  const int rank = walk.rank;
  constexpr int half = side / cluster, scale_bytes = along_tokens ? int(sizeof s.x_scale[0]) : 0;
  Turn<stages> turn;
  for (int number = walk.first; number < a.tiles; number += walk.stride) {
    const Tile t = tile_of(a, number, rank);
    for (int token = 0; token < t.w->tokens; token += depth, turn.next()) {
      auto& stage = s.stage[turn.stage];
      Barrier& full = s.rings.full[turn.stage];
      s.rings.empty[turn.stage].wait(turn.parity ^ 1);  // in both blocks
      full.arrive_and_expect(int(sizeof stage) + scale_bytes);
      load(stage.dy, t.w->dy, full, CachePolicy::normal, token, t.row, 0);
      load_in_all(stage.x + rank * half * depth, t.w->x, full, CachePolicy::normal, 3, token, t.column + rank * half, 0);
      if constexpr (along_tokens) {
        s.x_scale_read[turn.stage].wait(turn.parity ^ 1);
        load_run(s.x_scale[turn.stage], t.w->x_scale + std::int64_t(token / depth) * t.w->x_scale_step + t.column, scale_bytes, full);
      }
    }
  }
}

// ---- warps that multiply -------------------------------------------------------------------------------------------
template <class OfDy, bool along_tokens, class Moments>
__device__ __forceinline__ void multiply(const Args& a, Shared& s, const Walker& walk, int group) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, row_here = group * 64 + warp * 16 + lane / 4;  // row of X
  const Descriptors words(&s);
  const auto offset = [&](const void* p) { return int(static_cast<const char*>(p) - reinterpret_cast<const char*>(&s)); };
  Turn<stages> turn;
  int parity = 1;
  Tile t{};
  for (int number = walk.first; number < a.tiles; number += walk.stride, parity ^= 1) {
    t = tile_of(a, number, walk.rank);
    float sum[side / 2], part[side / 2];  // rows of X down, of dY across
#pragma unroll
    for (float& x : sum) x = 0;
    const float* const of_dy = along_tokens ? t.w->dy_scale + std::int64_t(t.row / depth) * t.w->dy_scale_step : nullptr;
    const int steps = ceil_div(t.w->tokens, depth);  // tokens past the end arrive as zeros
    const auto dy_at = [&](int step) { return along_tokens && step < steps ? __ldg(of_dy + step) : 1.f; };
    float dy_here = dy_at(lane), dy_next = dy_at(32 + lane);  // lane l: of step 32 i + l; a load a step would be waited for within it
    for (int step = 0; step < steps; ++step, turn.next()) {
      s.rings.full[turn.stage].wait_awake(turn.parity);
      const int at = offset(s.stage) + turn.stage * int(sizeof s.stage[0]);
      mma_fence();
#pragma unroll
      for (int i = 0; i < depth / 32; ++i)
        mma_e4m3<OfDy>(part, words.at(at + int(sizeof s.stage[0].dy) + group * panel_bytes(64) + k_offset(64, i)),
                       words.at(at + k_offset(side, i)), i > 0);
      mma_commit();
      float scale[2] = {1, 1};
      if constexpr (along_tokens) {
        const float dy = __shfl_sync(~0u, dy_here, step % 32);
        for (int r = 0; r < 2; ++r) scale[r] = s.x_scale[turn.stage][row_here + 8 * r] * dy;
        s.x_scale_read[turn.stage].arrive();
        if (step % 32 == 31) dy_here = dy_next, dy_next = dy_at(step + 33 + lane);
      }
      mma_wait<0>();
      pin(part);
      release(s.rings, turn.stage);
#pragma unroll
      for (int i = 0; i < side / 2; ++i) sum[i] = along_tokens ? fmaf(part[i], scale[i / 2 % 2], sum[i]) : sum[i] + part[i];
    }
    if constexpr (!along_tokens) {
      const auto scale_at = [](const float* scale, int step, int line) { return __ldg(scale + std::int64_t(line) * step); };
      const ScaledWeight& w = *t.w;
      const float of_x[2] = {scale_at(w.x_scale, w.x_scale_step, t.column + row_here),
                             scale_at(w.x_scale, w.x_scale_step, t.column + row_here + 8)};
#pragma unroll
      for (int i = 0; i < side / 2; ++i)
        sum[i] *= of_x[i / 2 % 2] * scale_at(w.dy_scale, w.dy_scale_step, t.row + i / 4 * 8 + lane % 4 * 2 + i % 2);
    }

    s.rings.out_empty.wait(parity);
    const auto word = [&](int j, int r) { return pack<__nv_bfloat16>(sum[4 * j + 2 * r], sum[4 * j + 2 * r + 1]); };
#pragma unroll
    for (int j = 0; j < side / 8; j += 2)  // lane l: row l % 8 of dY's eight rows j or j + 1, eight columns of X
      store_blocks_transposed(s.out[j / 8][group] + swizzled(j % 8 * 8 + lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2), word(j, 0),
                              word(j, 1), word(j + 1, 0), word(j + 1, 1));
    s.rings.out_full.arrive();  // every lane, for what it has stored
  }
  update<side, at_once, false, Moments>(a.numbers, t, s.out, s.rings.out_full, updaters + group * 4 + warp, updaters + multipliers,
                                        parity);  // no products left: update too
}

// product_update_fp8_sm90 — of every weight: m, v and both halves of w, from the gradient dYᵀ X
//   reads   dY (E4M3 or E5M2) once per 128 columns, X (E4M3) once per 256 rows; scales; moments and halves once     writes  moments and halves
//   needs   sm_90a, sides that 256 divides, tokens that 16 divides, tensors on 16 bytes; an even number of blocks
//   numerics  128 tokens as Hopper adds 8-bit products, these scaled (along_tokens: 128 x 128 and 1 x 128) and added in FP32 in order, other scales
//             after the last; the gradient rounded to bf16, the update to the bits of adamw_step; repeats bit for bit
//   limit   tensor cores and the update's 24 bytes a weight, which run beside each other
template <class OfDy, bool along_tokens, class Moments>
__global__ void __launch_bounds__(threads, 1) product_update_fp8_sm90(const __grid_constant__ Args a) {
  static_assert(sizeof(Shared) <= 227 * 1024);
  static_assert(2 * (registers_of_updaters + registers_of_multipliers) <= 65536 / 128);
  if (a.numbers->go == 0) return;  // nothing may change
  extern __shared__ __align__(1024) char memory[];
  auto& s = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0)
    for (Barrier& b : s.x_scale_read) b.init(multipliers * 32);
  const Walker walk = set_up(s.rings, updaters);
  if (walk.warp >= 8) {
    registers_up<registers_of_multipliers>();
    multiply<OfDy, along_tokens, Moments>(a, s, walk, (walk.warp - 8) / 4);
  } else {
    registers_down<registers_of_updaters>();
    if (threadIdx.x == 0) fetch<along_tokens>(a, s, walk);
    if (walk.warp > 0) update_tiles<side, side, at_once, false, Moments>(a, s.rings, s.out, walk, walk.warp - 1, updaters);
    __syncwarp();
  }
  cluster_meet();  // no block exits while the other still sends
}

Map map_of(const Tensor& t, int lines) {  // [lines, tokens] → (token, line, 1)
  const auto tokens = std::uint64_t(t.shape[1]), all = std::uint64_t(t.shape[0]);
  return make_byte_map(t.data,
                       {.rank = 3, .dim = {tokens, all, 1}, .stride = {1, tokens, tokens * all}, .box = {depth, std::uint32_t(lines), 1}},
                       BoxLayout::swizzled);
}

}  // namespace

void advance_fp8_sm90(std::span<const Item> all, const Tensor& numbers, Context& ctx) {
  if (all.empty()) return;
  Args a{};
  a.numbers = numbers.as<adamw::Numbers>();
  const Scaled& as_first = all[0].dy_transposed;
  for (const Item& i : all) {
    const auto step = [](const Scaled& t) { return along_k(t.kind) ? int(t.scale.stride[0]) : t.kind == ScaleKind::row ? 1 : 0; };
    ScaledWeight w{};
    w.dy = map_of(i.dy_transposed.values, side), w.x = map_of(i.x_transposed.values, side / cluster);
    w.dy_scale = i.dy_transposed.scale.as<float>(), w.x_scale = i.x_transposed.scale.as<float>();
    w.dy_scale_step = step(i.dy_transposed), w.x_scale_step = step(i.x_transposed);
    add_weight<side, side>(a, w, i);
  }
  a.deal.whole = a.tiles;
  const bool e5m2 = as_first.values.dtype == DType::e5m2;
  const auto start = [&]<class Moments>(Moments) {
    const auto kernel = along_k(as_first.kind) ? e5m2 ? product_update_fp8_sm90<__nv_fp8_e5m2, true, Moments>
                                                      : product_update_fp8_sm90<__nv_fp8_e4m3, true, Moments>
                        : e5m2 ? product_update_fp8_sm90<__nv_fp8_e5m2, false, Moments>
                                               : product_update_fp8_sm90<__nv_fp8_e4m3, false, Moments>;
    launch_clusters(kernel, a, threads, sizeof(Shared), ctx);
  };
  all[0].weight.m.dtype == DType::bf16 ? start(HalfMoments()) : start(WholeMoments());
}

}  // namespace headroom::product_update
