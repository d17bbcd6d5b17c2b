// gated_product_fwd_sm90, gated_product_bwd_sm90 — a product on Hopper and the SwiGLU beside it (tiles.cuh).
#include <algorithm>

#include "gpu/launch.cuh"
#include "ops/gated_product/impl.h"
#include "ops/gated_product/tiles.cuh"

namespace headroom::gated_product {

namespace {

// gated_product_fwd_sm90 — gate_up = x·Wᵀ and act = silu(gate)·up
//   reads   x once per 128 channels, W once per 256 rows (through TMA)     writes  gate_up (through TMA), act unless it is null
//   needs   sm_90a, widths that 8 divides, tensors on 16 bytes; an even number of blocks, at most two for each tile of a cluster
//   numerics  FP32 sums in order, gate and up rounded to bf16, act from these to the bits of swiglu_fwd; repeats bit for bit
//   limit   the tensor cores; SwiGLU and its traffic overlap them, except the last tile's
__global__ void __launch_bounds__(threads, 1) gated_product_fwd_sm90(const __grid_constant__ Args a) { run<ForwardPass, 2, false>(a); }

// gated_product_bwd_sm90 — the gradients of gate and up from dact = dy·W, in their place; again: act too
//   reads   dy once per 256 channels, W once per 256 rows (through TMA), gate_up once     writes  gate_up, and act where it is made again
//   needs, limit   as forward     numerics  as forward: dact rounded to bf16, the gradients to the bits of swiglu_bwd
template <bool again>
__global__ void __launch_bounds__(threads, 1) gated_product_bwd_sm90(const __grid_constant__ Args a) {
  run<BackwardPass, 4, again>(a);
}

// [rows, columns] of a matrix whose columns are summed over: 64 of them, of `box` rows.
Map terms_of(const Tensor& t, std::uint32_t box) {
  const auto rows = std::uint64_t(t.shape[0]), columns = std::uint64_t(t.shape[1]);
  return make_map(t.data, MapType::bf16, {.rank = 2, .dim = {columns, rows}, .stride = {1, columns}, .box = {panel_columns, box}});
}

template <class Pass>
void start(void (*kernel)(Args), Args a, const Sizes& s, Context& ctx) {
  a.rows = int(s.rows), a.width = int(s.width), a.sum = int(s.terms);
  const int high = ceil_div(a.rows, tile_rows * pair_blocks), wide = ceil_div(a.width, Pass::channels);
  a.tiles = high * wide;
  if (a.tiles == 0) return;
  const int pairs = std::min(ctx.device.units / pair_blocks, a.tiles);
  launch(cuda_stream(ctx.stream), kernel,
         {.blocks = unsigned(pairs * pair_blocks), .threads = unsigned(threads), .shared_bytes = sizeof(Shared), .cluster = pair_blocks},
         a);
}

}  // namespace

void forward_sm90(const Forward& f, Context& ctx) {
  const Sizes s = f.sizes();
  const auto terms = std::uint64_t(s.terms), rows = std::uint64_t(s.rows), width = std::uint64_t(s.width);
  Args a{};
  a.a = terms_of(f.x, tile_rows);
  a.b = make_map(
      f.w.data, MapType::bf16,
      {.rank = 3, .dim = {terms, width, 2}, .stride = {1, terms, width * terms}, .box = {panel_columns, ForwardPass::channels, 1}});
  a.gate_up = make_map(f.gate_up.data, MapType::bf16,
                       {.rank = 3, .dim = {width, rows, 2}, .stride = {1, 2 * width, width}, .box = {panel_columns, 64, 1}});
  a.half = f.act.as<bf16>();
  start<ForwardPass>(gated_product_fwd_sm90, a, s, ctx);
}

void backward_sm90(const Backward& b, Context& ctx) {
  const Sizes s = b.sizes();
  const auto terms = std::uint64_t(s.terms), width = std::uint64_t(s.width);
  Args a{};
  a.a = terms_of(b.dy, tile_rows);
  a.b = make_map(b.w.data, MapType::bf16,
                 {.rank = 3, .dim = {width, terms, 1}, .stride = {1, width, width * terms}, .box = {panel_columns, depth, 1}});
  a.half = b.act.as<bf16>(), a.both = b.gate_up.as<bf16>();
  start<BackwardPass>(b.act ? gated_product_bwd_sm90<true> : gated_product_bwd_sm90<false>, a, s, ctx);
}

}  // namespace headroom::gated_product
