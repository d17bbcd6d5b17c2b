// flash_sm90_fp8 — host side: what it serves, tensor maps, launches. Tiles are whole; the workspace is a counter where they are handed out as asked.
#include <cuda_fp8.h>

#include <climits>
#include <numbers>

#include "base/error.h"
#include "gpu/beside.h"
#include "gpu/byte_map.h"
#include "ops/attention/impl.h"
#include "ops/attention/on_stream.h"
#include "ops/attention/refusals.h"
#include "ops/attention/sm90/deal.h"
#include "ops/attention/sm90/fwd_fp8.h"
#include "ops/attention/sm90/tensors.h"
#include "ops/attention/sm90/tiles_fp8.h"

namespace headroom::attention {

namespace {

using namespace sm90;

constexpr std::int64_t aligned = 16;  // bytes, and numbers of 8 bits

void check_reachable_fp8(const char* name, const Tensor& t) {
  check(reinterpret_cast<std::uintptr_t>(t.data) % aligned == 0, Code::unsupported, "flash_sm90_fp8: {} must start on 16 bytes", name);
  for (int i = 0; i < 3; ++i) {
    const std::int64_t stride = t.stride[std::size_t(i)];
    check(t.shape[i] <= 1 || (stride > 0 && stride % aligned == 0 && stride < (1ll << 40)), Code::unsupported,
          "flash_sm90_fp8: {} has stride {} in dimension {}; strides must be positive multiples of 16 bytes", name, stride, i);
  }
}

std::uint64_t stride_of(const Tensor& t, int i) { return std::uint64_t(t.shape[i] > 1 ? t.stride[std::size_t(i)] : aligned); }

Map rows_map_of(const Tensor& t, int box_rows) {  // [batch, len, heads, dim] → (dim, len, heads, batch)
  return make_byte_map(t.data,
                       {.rank = 4,
                        .dim = {std::uint64_t(t.shape[3]), std::uint64_t(t.shape[1]), std::uint64_t(t.shape[2]), std::uint64_t(t.shape[0])},
                        .stride = {1, stride_of(t, 1), stride_of(t, 2), stride_of(t, 0)},
                        .box = {128, std::uint32_t(box_rows), 1, 1}},
                       BoxLayout::swizzled);
}

// [batch, kv_heads, blocks, dim_v · 16] → (256, dim_v / 16, blocks, kv_heads, batch): a block's bytes in lines of 256
Map values_map_of(const Tensor& t, int dim, int keys) {
  constexpr std::uint64_t line = 256;
  return make_byte_map(
      t.data,
      {.rank = 5,
       .dim = {line, std::uint64_t(t.shape[3]) / line, std::uint64_t(t.shape[2]), std::uint64_t(t.shape[1]), std::uint64_t(t.shape[0])},
       .stride = {1, line, stride_of(t, 2), stride_of(t, 1), stride_of(t, 0)},
       .box = {std::uint32_t(line), std::uint32_t(dim / 16), std::uint32_t(keys / int(keys_of_v_block)), 1, 1}},
      BoxLayout::as_it_is);
}

// 192 rows of a tile leave few pairs of a long head: the last ones run alone. Causal, time in turn over asked for, at 1k, 2k, 4k, 8k and 16k (one H200,
// 2026-11-29): head dim 64 1.06, 1.02, 1.03, 1.05, 1.05, 128 1.03, 1.01, 1.11, 1.14, 1.14, 256 1.00, 1.00, 1.00, 1.00, 1.02.
TileOrder order_of(const ForwardArgs& a, int dim) {
  return a.band.reach == Reach::before && a.band.len_k >= (dim > 128 ? 4096 : 1024) ? TileOrder::asked : TileOrder::in_turn;
}

template <class Tiles>
void fp8_forward_by(const Problem& p, const Forward& t, Context& ctx) {
  constexpr int rows = Tiles::consumers * 64;
  ForwardFp8Args a{};
  a.band = in_32_bits(p.band());
  const std::int64_t row_tiles = ceil_div(p.len_q, rows), tiles = row_tiles * p.batch * p.heads;
  check(tiles <= INT_MAX, Code::unsupported, "flash_sm90_fp8: {} tiles are too many for one launch", tiles);
  a.batch = int(p.batch);
  a.heads = int(p.heads);
  a.kv_heads = int(p.kv_heads);
  a.head_dim = int(p.head_dim);
  a.dim_v = int(p.value_dim());
  a.rows = int(p.len_q);
  a.row_tiles = int(row_tiles);
  a.blocks_of_tile = 1;
  a.scale_log2 = p.scale_or_default() * std::numbers::log2e_v<float>;
  deal_whole_tiles(a, order_of(a, Tiles::dim), double(p.len_k) * double(p.head_dim + p.value_dim()) / double(p.group()), ctx, Tiles::dim);
  if (ctx.dry()) return;
  a.q = rows_map_of(t.q, 64);
  a.k = rows_map_of(t.k, Tiles::keys);
  a.v = values_map_of(t.v, Tiles::dim, Tiles::keys);
  a.o = map_of(t.o, 64);
  a.o_data = t.o.data;
  a.o_batch = t.o.stride[0];
  a.o_row = t.o.stride[1];
  a.o_head = t.o.stride[2];
  a.lse = t.lse.as<float>();
  a.q_scale = t.with.q_scale.as<float>();
  a.k_scale = t.with.k_scale.as<float>();
  a.v_scale = t.with.v_scale.as<float>();
  const auto stream = cuda_stream(ctx.stream);
  switch (a.band.reach) {
    case Reach::all: return beside::call<start_forward_fp8<Tiles, Reach::all>>(a, ctx.device.units, stream);
    case Reach::before: return beside::call<start_forward_fp8<Tiles, Reach::before>>(a, ctx.device.units, stream);
    default: return beside::call<start_forward_fp8<Tiles, Reach::run>>(a, ctx.device.units, stream);
  }
}

}  // namespace

Support sm90_fp8_supports(const Problem& p, const Device& device, Pass pass) {
  if (Support s = first_refusal({p, device, pass}, {needs_fp8, needs_hopper, needs_forward, needs_dims_of_16_bytes, needs_dims_up_to_256,
                                                    needs_positive_scale, needs_lengths_in_32_bits});
      !s)
    return s;
  return asks_no_more_than(p, {.dim_v = true});
}

void sm90_fp8_forward(const Problem& p, const Forward& t, Context& ctx) {
  const auto op = ctx.note("attention.flash_sm90_fp8.forward", p.precision, forward_cost(p), Work::attention);
  if (p.lse_shape().count() == 0) return;
  if (p.len_k == 0) return no_keys(p, t, ctx);
  if (!ctx.dry()) {
    for (auto [name, tensor] : {std::pair{"q", &t.q}, {"k", &t.k}, {"v", &t.v}}) check_reachable_fp8(name, *tensor);
    check_reachable("o", t.o);
  }
  with_fp8_tiles<__nv_bfloat16, __nv_fp8_e4m3>(std::max(p.head_dim, p.value_dim()),
                                               [&]<class Tiles>(Tiles) { fp8_forward_by<Tiles>(p, t, ctx); });
}

}  // namespace headroom::attention
