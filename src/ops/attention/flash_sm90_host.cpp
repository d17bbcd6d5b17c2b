// flash_sm90 — Hopper's attention, host side: what it serves, how its work is dealt, tensor maps, launches.
//
// Workspace: nothing, except for Way::parts: two partial outputs (FP32) for each block, and the counters by which the last part of a
// row tile to arrive adds them up.
#include <algorithm>
#include <climits>
#include <cmath>

#include "base/error.h"
#include "gpu/check.h"
#include "ops/attention/flash_sm90_fwd.h"
#include "ops/attention/flash_sm90_tensors.h"
#include "ops/attention/impl.h"
#include "ops/attention/tiles.h"

namespace headroom::attention {

namespace {

using namespace sm90;

constexpr std::int64_t divided_up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

Reach reach_of(const Mask& m) { return m.kind == MaskKind::full ? Reach::all : m.kind == MaskKind::causal ? Reach::causal : Reach::window; }

// How many query heads of one key head are laid side by side as rows of a tile (their logarithm), so that few positions still fill it.
int packed_log2_of(const Problem& p) {
  constexpr std::int64_t most = 64;  // rows of one box
  int log2 = 0;
  while ((p.group() >> log2) % 2 == 0 && (2ll << log2) <= most) ++log2;
  return p.len_q <= 64 && (1ll << log2) == p.group() ? log2 : 0;
}

struct Plan {
  Way way = Way::whole;
  int blocks_of_tile = 1;  // Way::cluster
};

// The way that takes least, in steps of a block; `units` multiprocessors. Constants from one head of 128 … 65536 on an H200 (132): see
// docs/attention.md. A cluster's blocks must be neighbours, so that not all multiprocessors can be had.
Plan plan_of(std::int64_t tiles, std::int64_t tiles_of_cluster, std::int64_t key_tiles, int units, bool packed) {
  constexpr int clusters_of_132[] = {132, 66, 39, 30, 22, 17, 15, 15};
  constexpr double step_of_cluster = 0.8, add_in_cluster = 0.8, add_per_block = 0.15, add_parts = 5;
  Plan best;
  double best_time = packed ? INFINITY : double(divided_up(tiles, units) * key_tiles);
  for (int blocks = packed ? 1 : 2; blocks <= std::min<std::int64_t>(8, key_tiles); ++blocks) {
    const std::int64_t at_once = std::max(clusters_of_132[blocks - 1] * units / 132, 1), rounds = divided_up(tiles_of_cluster, at_once);
    const double time = double(rounds * divided_up(key_tiles, blocks)) * step_of_cluster + add_in_cluster + add_per_block * blocks;
    if ((packed || rounds == 1) && time < best_time) best = {Way::cluster, blocks}, best_time = time;
  }
  const double even = double(tiles) * double(key_tiles) / units;  // a block's part, where row tiles walk alike
  if (!packed && key_tiles >= 8 && even + add_parts < best_time * 0.97) best = {Way::parts};
  return best;
}

template <class Tiles>
void start(const ForwardArgs& a, Reach reach, const Context& ctx) {
  const auto stream = static_cast<cudaStream_t>(ctx.stream);
  switch (reach) {
    case Reach::all: return start_forward<Tiles, Reach::all>(a, ctx.device.units, stream);
    case Reach::causal: return start_forward<Tiles, Reach::causal>(a, ctx.device.units, stream);
    case Reach::window: return start_forward<Tiles, Reach::window>(a, ctx.device.units, stream);
  }
}

// Rows are (position, query head within the pack), positions outermost.
Map packed_map_of(const Tensor& t, int packed_log2) {  // [batch, len, heads, dim] → (dim, packed, len, heads, batch)
  const auto stride = [&](int i) { return std::uint64_t(t.shape[i] > 1 ? t.stride[std::size_t(i)] : 8); };
  const std::uint64_t packed = 1ull << packed_log2, heads = std::uint64_t(t.shape[2]) / packed;
  return make_map(t.data, t.dtype == DType::f16 ? MapType::f16 : MapType::bf16,
                  {.rank = 5,
                   .dim = {std::uint64_t(t.shape[3]), packed, std::uint64_t(t.shape[1]), heads, std::uint64_t(t.shape[0])},
                   .stride = {1, stride(2), stride(1), heads > 1 ? stride(2) * packed : 8, stride(0)},
                   .box = {panel_columns, std::uint32_t(packed), std::uint32_t(64 / packed), 1, 1}});
}

template <class Tiles>
void forward_by(const Problem& p, const Forward& t, const Plan& plan, Context& ctx) {
  constexpr int rows = Tiles::consumers * 64;
  const Reach reach = reach_of(p.mask);
  ForwardArgs a{};
  a.packed_log2 = Tiles::way == Way::cluster ? packed_log2_of(p) : 0;
  const std::int64_t heads = p.heads >> a.packed_log2, all_rows = p.len_q << a.packed_log2;
  const std::int64_t row_tiles = divided_up(all_rows, rows), tiles = row_tiles * p.batch * heads;
  check(tiles * plan.blocks_of_tile <= INT_MAX, Code::unsupported, "flash_sm90: {} tiles are too many for one launch", tiles);
  a.batch = int(p.batch), a.heads = int(heads), a.kv_heads = int(p.kv_heads), a.head_dim = int(p.head_dim);
  a.len_q = int(p.len_q), a.len_k = int(p.len_k), a.rows = int(all_rows), a.row_tiles = int(row_tiles);
  const Band band = p.band();  // kept where the sum with a row cannot overflow
  const auto bounded = [](std::int64_t key) { return int(std::clamp<std::int64_t>(key, -(1 << 30), 1 << 30)); };
  a.low = bounded(band.shift - band.behind), a.high = bounded(band.shift + band.ahead);
  a.scale_log2 = p.scale_or_default() * 1.44269504f;
  a.blocks_of_tile = plan.blocks_of_tile;
  if constexpr (Tiles::way == Way::parts) {
    for (int tile = 0; tile < a.row_tiles; ++tile) {
      const KeyTiles keys = key_tiles(a, reach, tile * rows, rows, Tiles::keys);
      a.steps += keys.last - keys.first;
    }
    const std::int64_t blocks = std::min<std::int64_t>(ctx.device.units, a.steps * p.batch * heads), parts = 2 * blocks;
    a.units = int(blocks);
    a.partial_o = ctx.arena.make("attention.partial_o", DType::f32, {parts, rows, Tiles::dim}).template as<float4>();
    a.partial_lse = ctx.arena.make("attention.partial_lse", DType::f32, {parts, rows}).template as<float>();
    const Tensor arrivals = ctx.arena.make("attention.arrivals", DType::i32, {tiles * Tiles::consumers});
    a.arrivals = arrivals.as<int>();
    if (!ctx.dry()) cuda(cudaMemsetAsync(arrivals.data, 0, arrivals.bytes(), static_cast<cudaStream_t>(ctx.stream)));
  } else {
    a.units = int(Tiles::way == Way::cluster ? tiles * plan.blocks_of_tile : dealt_units(reach, row_tiles, p.batch * heads));
  }
  if (ctx.dry()) return;
  a.q = Tiles::way == Way::cluster ? packed_map_of(t.q, a.packed_log2) : map_of(t.q, 64);
  a.k = map_of(t.k, Tiles::keys), a.v = map_of(t.v, Tiles::keys), a.o = map_of(t.o, 64);
  a.o_data = t.o.data, a.o_batch = t.o.stride[0], a.o_row = t.o.stride[1], a.o_head = t.o.stride[2];
  a.lse = t.lse.as<float>();
  start<Tiles>(a, reach, ctx);
}

template <class Tiles>
Plan plan_for(const Problem& p, const Context& ctx) {
  const int packed = packed_log2_of(p);
  const std::int64_t tiles = divided_up(p.len_q, Tiles::consumers * 64) * p.batch * p.heads,
                     tiles_of_cluster = divided_up(p.len_q << packed, Cluster<Tiles>::consumers * 64) * p.batch * (p.heads >> packed);
  return plan_of(tiles, tiles_of_cluster, divided_up(p.len_k, Tiles::keys), ctx.device.units, packed > 0);
}

template <class Tiles>
void forward_with(const Problem& p, const Forward& t, const Plan& plan, Context& ctx) {
  switch (plan.way) {
    case Way::whole: return forward_by<Tiles>(p, t, plan, ctx);
    case Way::parts: return forward_by<Parts<Tiles>>(p, t, plan, ctx);
    case Way::cluster: return forward_by<Cluster<Tiles>>(p, t, plan, ctx);
  }
}

// Head dims 65 … 128. Up to 96 only whole tiles have instances of their own; problems that are dealt otherwise are small.
template <class T>
void forward_between(const Problem& p, const Forward& t, Context& ctx) {
  const auto plan = plan_for<Forward128<T>>(p, ctx);
  if (p.head_dim > 96 || plan.way != Way::whole) return forward_with<Forward128<T>>(p, t, plan, ctx);
  const std::int64_t keys = p.mask.kind == MaskKind::full ? p.len_k : p.len_k / 2;  // that a row sees
  if (keys <= 2048) return p.head_dim > 80 ? forward_by<Forward96Short<T>>(p, t, {}, ctx) : forward_by<Forward80Short<T>>(p, t, {}, ctx);
  return p.head_dim > 80 ? forward_by<Forward96<T>>(p, t, {}, ctx) : forward_by<Forward80<T>>(p, t, {}, ctx);
}

template <class T>
void forward_as(const Problem& p, const Forward& t, Context& ctx) {
  const std::int64_t tiles = divided_up(p.len_q, 256) * p.batch * p.heads;
  if (p.head_dim > 128)
    forward_with<Forward256<T>>(p, t, plan_for<Forward256<T>>(p, ctx), ctx);
  else if (p.head_dim > 64)
    forward_between<T>(p, t, ctx);
  else if (p.len_q <= 1024 && p.len_k <= 1024 && tiles >= ctx.device.units)
    forward_by<Forward64Short<T>>(p, t, {}, ctx);
  else
    forward_with<Forward64<T>>(p, t, plan_for<Forward64<T>>(p, ctx), ctx);
}

}  // namespace

Support sm90_supports(const Problem& p, const Device& device, Pass) {
  if (device.kind != DeviceKind::cuda) return Support::no("needs a CUDA device");
  if (device.sm != 90) return Support::no(fmt::format("needs Hopper (sm_90), this is sm_{}", device.sm));
  if (p.precision.dtype != DType::bf16 && p.precision.dtype != DType::f16)
    return Support::no(fmt::format("needs bf16 or fp16, {} was asked", name_of(p.precision)));
  if (p.head_dim % 8 != 0) return Support::no(fmt::format("needs head_dim to be a multiple of 8 (16 bytes), it is {}", p.head_dim));
  if (p.scale < 0) return Support::no(fmt::format("needs a positive scale, it is {}", p.scale));
  if (std::max(p.len_q, p.len_k) > (1 << 29)) return Support::no("serves lengths up to 2^29");
  return {};
}

void sm90_forward(const Problem& p, const Forward& t, Context& ctx) {
  const double size = double(size_of(p.precision.dtype));
  const auto op =
      ctx.note("attention.flash_sm90.forward", p.precision,
               {forward_flops(p), size * 2 * double(p.q_shape().count() + p.k_shape().count()) + 4 * double(p.lse_shape().count())},
               Work::attention);
  if (p.lse_shape().count() == 0) return;
  if (p.len_k == 0) return no_keys(p, t, ctx);
  if (!ctx.dry()) check_reachable("q", t.q), check_reachable("k", t.k), check_reachable("v", t.v), check_reachable("o", t.o);
  if (p.precision.dtype == DType::bf16)
    forward_as<__nv_bfloat16>(p, t, ctx);
  else
    forward_as<__half>(p, t, ctx);
}

}  // namespace headroom::attention
