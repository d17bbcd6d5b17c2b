// flash_sm90 — Hopper's attention, host side: what it serves, how its work is dealt, tensor maps, launches.
//
// Workspace: a counter where blocks ask for tiles; for Way::parts two partial outputs (FP32) for each block, and the counters by which the last part of a
// row tile to arrive adds them up.
#include <algorithm>
#include <climits>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "gpu/architecture.h"
#include "gpu/beside.h"
#include "gpu/check.h"
#include "ops/attention/documents/documents.h"
#include "ops/attention/impl.h"
#include "ops/attention/mend/mend.h"
#include "ops/attention/on_stream.h"
#include "ops/attention/refusals.h"
#include "ops/attention/sm90/deal.h"
#include "ops/attention/sm90/fwd.h"
#include "ops/attention/sm90/tensors.h"
#include "ops/attention/sm90/tiles.h"
#include "ops/attention/units_us.h"

namespace headroom::attention {

namespace {

using namespace sm90;

// How many query heads of one key head are laid side by side as rows of a tile (their logarithm), so that few positions still fill it.
int packed_log2_of(const Problem& p) {
  constexpr std::int64_t most = 64;  // rows of one box
  int log2 = 0;
  while ((p.group() >> log2) % 2 == 0 && (2ll << log2) <= most) ++log2;
  return p.len_q <= 64 && (1ll << log2) == p.group() ? log2 : 0;
}

struct Partition {
  Way way = Way::whole;
  int blocks_of_tile = 1;  // Way::cluster
};

// The way that takes least, in steps of a block; `units` multiprocessors. Constants from one head of 128 … 65536 on an H200 (132): see
// bench/lab/attention_fwd.md. A cluster's blocks must be neighbours, so that not all multiprocessors can be had.
Partition partition_of(std::int64_t tiles, std::int64_t tiles_of_cluster, std::int64_t key_tiles, int units, bool packed) {
  const Architecture& hopper = architecture_of(90);
  constexpr double step_of_cluster = 0.8, add_in_cluster = 0.8, add_per_block = 0.15, add_parts = 5;
  Partition best;
  double best_time = packed ? INFINITY : double(ceil_div(tiles, units) * key_tiles);
  for (int blocks = packed ? 1 : 2; blocks <= std::min<std::int64_t>(8, key_tiles); ++blocks) {
    const std::int64_t at_once = std::max(hopper.clusters_at_once[std::size_t(blocks - 1)] * units / hopper.clusters_of_units, 1),
                       rounds = ceil_div(tiles_of_cluster, at_once);
    const double time = double(rounds * ceil_div(key_tiles, blocks)) * step_of_cluster + add_in_cluster + add_per_block * blocks;
    if ((packed || rounds == 1) && time < best_time) {
      best = {Way::cluster, blocks};
      best_time = time;
    }
  }
  const double even = double(tiles) * double(key_tiles) / units;  // a block's part, where row tiles walk alike
  if (!packed && key_tiles >= 8 && even + add_parts < best_time * 0.97) best = {Way::parts};
  return best;
}

enum class Instances { plain, documents, cap, by_place };  // the instances of a shape: only some shapes have more than plain ones

template <class Tiles, Instances asks>
void start(const ForwardArgs& a, const Context& ctx) {
  const auto stream = cuda_stream(ctx.stream);
  if constexpr (asks == Instances::documents) return beside::call<start_forward<Tiles, Reach::listed>>(a, ctx.device.units, stream);
  if constexpr (asks == Instances::cap)
    return a.band.reach == Reach::listed ? beside::call<start_forward<Tiles, Reach::listed, true>>(a, ctx.device.units, stream)
                                         : beside::call<start_forward<Tiles, Reach::run, true>>(a, ctx.device.units, stream);
  if constexpr (asks == Instances::by_place) return beside::call<start_forward<Tiles, Reach::run>>(a, ctx.device.units, stream);
  if constexpr (asks == Instances::plain) switch (a.band.reach) {
      case Reach::all: return beside::call<start_forward<Tiles, Reach::all>>(a, ctx.device.units, stream);
      case Reach::before: return beside::call<start_forward<Tiles, Reach::before>>(a, ctx.device.units, stream);
      default: return beside::call<start_forward<Tiles, Reach::run>>(a, ctx.device.units, stream);
    }
}

// What (batch, head) pairs read of K and V, each its share where heads share them.
double bytes_of_pair(const Problem& p) { return 2.0 * double(p.len_k) * double(p.head_dim + p.value_dim()) / double(p.group()); }

// How long a forward keeps the units busy at their full clock: a block takes so long for each step of keys, and for each tile of rows besides. Fitted to kernels
// of an H100 and an H200 (bench/lab/kernel_times.md).
struct Pace {
  double step_us, tile_us;
  double hidden_us = 0;  // the part of tile_us that runs behind the tile before
};
template <class Tiles>
Pace pace_of() {
  if (Tiles::dim == 64) return Tiles::consumers == 4 ? Pace{1.02, 2.7, 0.4} : Pace{1.46, 1.6};
  if (Tiles::dim == 128) return {1.3, 2.1};
  if (Tiles::dim == 256) return {1.55, 2.5, 1};
  return Tiles::consumers == 2 ? Pace{1.02, 2} : Pace{1.6, 2};
}

// Up to 1k the heads that share keys in L2 have few tiles, and blocks that ask lose more than an uneven end costs.
TileOrder order_of(Reach reach, std::int64_t len_k) {
  return reach == Reach::before && len_k > 1024 ? TileOrder::asked : TileOrder::in_turn;
}

// 0 where causal tiles are not dealt longest first, else the steps of the block that has most.
template <class Tiles>
double steps_longest_first(const Problem& p, int units) {
  constexpr std::int64_t rows = Tiles::consumers * 64;
  const Band band = p.band();
  if (band.reach != Reach::before || order_of(band.reach, p.len_k) == TileOrder::asked) return 0;
  const Pace pace = pace_of<Tiles>();
  return time_longest_first(p.batch * p.heads, ceil_div(p.len_q, rows), bytes_of_pair(p), units, pace.tile_us / pace.step_us,
                            [&](int tile) {
                              const TileSpan seen = band.keys_between(tile * rows, std::min((tile + 1) * rows, p.len_q) - 1, Tiles::keys);
                              return int(std::max<std::int64_t>(1, seen.end - seen.begin));
                            });
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

template <class Tiles, Instances asks = Instances::plain>
void forward_by(const Problem& p, const Forward& t, const Partition& partition, Context& ctx) {
  constexpr int rows = Tiles::consumers * 64;
  ForwardArgs a{};
  const Lists lists = make_lists(p, ctx);
  a.band = in_32_bits(band_of(p, lists, 0));
  if ((asks == Instances::cap || asks == Instances::by_place || p.sink) && a.band.reach != Reach::listed)
    a.band.reach = Reach::run;  // the numbers say it all
  a.packed_log2 = Tiles::way == Way::cluster ? packed_log2_of(p) : 0;
  const std::int64_t heads = p.heads >> a.packed_log2, all_rows = p.len_q << a.packed_log2;
  const std::int64_t row_tiles = ceil_div(all_rows, rows), tiles = row_tiles * p.batch * heads;
  check(tiles * partition.blocks_of_tile <= INT_MAX, Code::unsupported, "flash_sm90: {} tiles are too many for one launch", tiles);
  a.batch = int(p.batch);
  a.heads = int(heads);
  a.kv_heads = int(p.kv_heads);
  a.head_dim = int(p.head_dim);
  a.dim_v = int(p.value_dim());
  a.rows = int(all_rows);
  a.row_tiles = int(row_tiles);
  a.scale_log2 = (p.softcap == 0 ? p.scale_or_default() : p.softcap) * std::numbers::log2e_v<float>;
  a.capping = capping_of(p.scale_or_default(), p.softcap);
  a.blocks_of_tile = partition.blocks_of_tile;
  if constexpr (Tiles::way == Way::parts) {
    for (int tile = 0; tile < a.row_tiles; ++tile) {
      const KeyTiles keys = key_tiles(a, a.band, tile * rows, rows, Tiles::keys);
      a.steps += keys.last - keys.first;
    }
    const std::int64_t blocks = std::min<std::int64_t>(ctx.device.units, a.steps * p.batch * heads), parts = 2 * blocks;
    a.units = int(blocks);
    a.partial_o = ctx.arena.make("attention.partial_o", DType::f32, {parts, rows, Tiles::dim}).template as<float4>();
    a.partial_lse = ctx.arena.make("attention.partial_lse", DType::f32, {parts, rows}).template as<float>();
    const Tensor arrivals = ctx.arena.make("attention.arrivals", DType::i32, {tiles * Tiles::consumers});
    a.arrivals = arrivals.as<int>();
    if (!ctx.dry()) set_bytes(arrivals.data, 0, arrivals.bytes(), ctx.stream);
  } else if (Tiles::way == Way::cluster) {
    a.units = int(tiles * partition.blocks_of_tile);
  } else if (asks != Instances::plain && a.band.reach == Reach::listed) {
    a.next_tile = ctx.arena.make("attention.next_tile", DType::i32, {1}).as<int>();
    // Dense time over ours with tails of 2 and 4 (H200, 2026-11-23): 32 documents of 512 0.88, 0.84, 0.91 and 0.88, 0.83, 0.83 at head dims 64, 128, 256; 16
    // uneven ones of 874 in the mean 0.85, 0.86, 0.99 and 0.88, 0.90, 1.08.
    const int tail = p.len_q <= 640 * p.documents ? 2 : 4;
    a.listed = make_tiles(p, ctx, rows, Tiles::keys, tail, false);
    a.tiles_asked = int(a.listed.most * p.batch * heads);
  } else {
    a.longest_first = a.band.reach == Reach::before && steps_longest_first<Tiles>(p, ctx.device.units) > 0;
    deal_whole_tiles(a, order_of(a.band.reach, p.len_k), bytes_of_pair(p), ctx, Tiles::dim);
  }
  list_documents_on_gpu(p, t.with, lists, ctx, a.next_tile, a.listed);
  if (ctx.dry()) return;
  a.q = Tiles::way == Way::cluster ? packed_map_of(t.q, a.packed_log2) : map_of(t.q, 64);
  a.k = map_of(t.k, Tiles::keys);
  a.v = map_of(t.v, Tiles::keys);
  a.o = map_of(t.o, 64);
  a.o_data = t.o.data;
  a.o_batch = t.o.stride[0];
  a.o_row = t.o.stride[1];
  a.o_head = t.o.stride[2];
  a.lse = t.lse.as<float>();
  a.sink = p.sink ? t.with.sink.as<float>() : nullptr;
  if constexpr (asks == Instances::by_place) {
    a.dropout = dropout_of(p, t.with);
    a.alibi = alibi_of(p, t.with);
    a.fall_by = 1 / p.scale_or_default();
  }
  a.not_numbers = not_numbers_of(lists);
  start<Tiles, asks>(a, ctx);
  mend_forward_on_gpu(p, t, lists, ctx);
}

template <class Tiles>
Partition partition_for(const Problem& p, int units) {
  const int packed = packed_log2_of(p);
  const std::int64_t tiles = ceil_div(p.len_q, Tiles::consumers * 64) * p.batch * p.heads,
                     tiles_of_cluster = ceil_div(p.len_q << packed, Cluster<Tiles>::consumers * 64) * p.batch * (p.heads >> packed);
  return partition_of(tiles, tiles_of_cluster, ceil_div(p.len_k, Tiles::keys), units, packed > 0);
}

// At the full clock; a block takes begin_us to begin.
template <class Tiles>
double units_us(const Problem& p, const Partition& partition, int units, Pace pace) {
  constexpr double begin_us = 2.9, list_us = 4.8, meet_us = 1.1, alone_us = 3;  // alone: a tile with none before or behind it
  const int packed = partition.way == Way::cluster ? packed_log2_of(p) : 0;
  const std::int64_t rows = 64 * (partition.way == Way::cluster ? Cluster<Tiles>::consumers : Tiles::consumers), len = p.len_q << packed,
                     pairs = p.batch * p.heads >> packed;
  const Band band = p.band();
  double longest = 0, all = 0, tiles = 0;
  for (std::int64_t row = 0; row < len; row += rows, ++tiles) {
    const TileSpan seen = band.keys_between(row >> packed, (std::min(row + rows, len) - 1) >> packed, Tiles::keys);
    longest = std::max(longest, double(std::max(1, seen.end - seen.begin)));
    all += std::max(1, seen.end - seen.begin);
  }
  const double even = all * double(pairs) / units;
  if (partition.way == Way::parts) return begin_us + pace.tile_us + pace.step_us * even + std::min(17.3, 2.4 * std::sqrt(even)) + list_us;
  if (partition.way == Way::cluster) {
    const double at_once = std::max(architecture_of(90).clusters_at_once[std::size_t(partition.blocks_of_tile - 1)] * units /
                                        architecture_of(90).clusters_of_units,
                                    1),
                 rounds = std::ceil(tiles * double(pairs) / at_once);
    return begin_us + rounds * (pace.tile_us + meet_us + pace.step_us * std::ceil(longest / partition.blocks_of_tile));
  }
  const bool asked = order_of(band.reach, p.len_k) == TileOrder::asked;
  const double together = band.reach == Reach::all ? 1 : 2,
               dealt = std::ceil(tiles / together) * double(pairs);  // a long tile and a short one
  if (const double steps = steps_longest_first<Tiles>(p, units); steps > 0)
    return begin_us + pace.step_us * steps + (tiles * double(pairs) <= units ? alone_us : 0);
  const double of_block = std::max(1.0, asked ? dealt / units : std::ceil(dealt / units));
  return begin_us +
         of_block * ((pace.tile_us - pace.hidden_us) * std::min(tiles, together) + pace.step_us * all / std::ceil(tiles / together)) +
         (asked ? list_us : 0);
}

// Shapes for head dims up to 96 and for short rows have instances for whole tiles alone; problems that are dealt otherwise are small.
template <class Tiles>
constexpr bool only_whole = Tiles::dim == 80 || Tiles::dim == 96 || Tiles::consumers == 4;

template <class Tiles>
void forward_with(const Problem& p, const Forward& t, const Partition& partition, Context& ctx) {
  if constexpr (only_whole<Tiles>) return forward_by<Tiles>(p, t, partition, ctx);
  if constexpr (!only_whole<Tiles>) switch (partition.way) {
      case Way::whole: return forward_by<Tiles>(p, t, partition, ctx);
      case Way::parts: return forward_by<EvenParts<Tiles>>(p, t, partition, ctx);
      case Way::cluster: return forward_by<Cluster<Tiles>>(p, t, partition, ctx);
    }
}

// Calls body<Tiles>(partition) with the shape for dense, uncapped scores, and how its tiles are dealt.
template <class T, class Body>
auto with_shape(const Problem& p, int units, Body&& body) {
  const std::int64_t dim = std::max(p.head_dim, p.value_dim());  // the narrower one's columns are zeros in shared memory
  if (dim > 128) return body.template operator()<Forward256<T>>(partition_for<Forward256<T>>(p, units));
  if (dim > 64) {
    const Partition partition = partition_for<Forward128<T>>(p, units);
    if (dim > 96 || partition.way != Way::whole) return body.template operator()<Forward128<T>>(partition);
    const std::int64_t keys = p.band().reach == Reach::all ? p.len_k : p.len_k / 2;  // what a row sees
    if (keys <= 2048)
      return dim > 80 ? body.template operator()<Forward96Short<T>>(Partition{}) : body.template operator()<Forward80Short<T>>(Partition{});
    return dim > 80 ? body.template operator()<Forward96<T>>(Partition{}) : body.template operator()<Forward80<T>>(Partition{});
  }
  const std::int64_t tiles = ceil_div(p.len_q, 256) * p.batch * p.heads;
  if (p.len_q <= 1024 && p.len_k <= 1024 && tiles >= units) return body.template operator()<Forward64Short<T>>(Partition{});
  return body.template operator()<Forward64<T>>(partition_for<Forward64<T>>(p, units));
}

// How much longer packed documents take than rows of a batch with as many tokens and visible pairs, and capped scores than others
// (bench/lab/attention_tables.md; bench/lab/attention_fwd.md, "Capped scores": a cap of 30, random scores).
double documents_longer(std::int64_t len) { return 1 + 75 / double(len); }
double cap_longer(std::int64_t dim) { return dim <= 64 ? 1.85 : dim <= 128 ? 1.46 : 1.23; }

double forward_us(const Problem& p, const Device& device) {
  if (p.lse_shape().count() == 0 || !on_timed_units(p, device)) return 0;
  const Alike like = alike(p);
  Problem each = like.each;
  each.batch = std::max<std::int64_t>(1, std::llround(like.sequences));
  const double us = with_shape<__nv_bfloat16>(each, device.units, [&]<class Tiles>(const Partition& partition) {
    return units_us<Tiles>(each, partition, device.units, pace_of<Tiles>());
  });
  return us * like.sequences / double(each.batch) * (p.documents != 0 ? documents_longer(each.len_q) : 1) *
         (p.softcap != 0 ? cap_longer(std::max(p.head_dim, p.value_dim())) : 1);
}

// Packed documents and capped scores: whole tiles, and shapes enough for every head dim.
template <class T>
void forward_of_more(const Problem& p, const Forward& t, Context& ctx) {
  const std::int64_t dim = std::max(p.head_dim, p.value_dim());
  if (p.softcap != 0) {
    if (dim > 128) return forward_by<Forward256<T>, Instances::cap>(p, t, {}, ctx);
    return dim > 64 ? forward_by<Forward128<T>, Instances::cap>(p, t, {}, ctx)
                    : forward_by<Forward64Capped<T>, Instances::cap>(p, t, {}, ctx);
  }
  if (dim > 128) return forward_by<Forward256<T>, Instances::documents>(p, t, {}, ctx);
  if (dim > 96) return forward_by<Forward128<T>, Instances::documents>(p, t, {}, ctx);
  if (dim > 80) return forward_by<Forward96Short<T>, Instances::documents>(p, t, {}, ctx);
  if (dim > 64) return forward_by<Forward80Short<T>, Instances::documents>(p, t, {}, ctx);
  if (p.len_q <= 1024 * p.documents) return forward_by<Forward64Short<T>, Instances::documents>(p, t, {}, ctx);
  return forward_by<Forward64<T>, Instances::documents>(p, t, {}, ctx);
}

// Dropout or ALiBi: whole tiles, and shapes enough for head dims up to 128.
template <class T>
void forward_by_place(const Problem& p, const Forward& t, Context& ctx) {
  const bool wide = std::max(p.head_dim, p.value_dim()) > 64;
  const auto with = [&]<class Tiles>() { forward_by<Tiles, Instances::by_place>(p, t, {}, ctx); };
  if (p.alibi)
    return wide ? with.template operator()<Placing<Forward128<T>, ByPlace::alibi>>()
                : with.template operator()<Placing<Forward64<T>, ByPlace::alibi>>();
  return wide ? with.template operator()<Placing<Forward128<T>, ByPlace::dropout>>()
              : with.template operator()<Placing<Forward64Pair<T>, ByPlace::dropout>>();
}

template <class T>
void forward_as(const Problem& p, const Forward& t, Context& ctx) {
  if (p.documents != 0 || p.softcap != 0) return forward_of_more<T>(p, t, ctx);
  if (p.asks_by_place()) return forward_by_place<T>(p, t, ctx);
  with_shape<T>(p, ctx.device.units, [&]<class Tiles>(const Partition& partition) { forward_with<Tiles>(p, t, partition, ctx); });
}

}  // namespace

Support sm90_supports(const Problem& p, const Device& device, Pass pass) {
  if (Support s = first_refusal({p, device, pass}, {needs_hopper, needs_16_bits, needs_dims_of_16_bytes, needs_dims_up_to_256,
                                                    needs_positive_scale, needs_lengths_in_32_bits});
      !s)
    return s;
  if (pass == Pass::backward && p.softcap != 0 && p.deterministic && std::max(p.head_dim, p.value_dim()) <= 128)
    return Support::no("sums dQ of capped scores in no fixed order up to head dim 128");
  if (p.asks_by_place()) {
    if (std::max(p.head_dim, p.value_dim()) > 128) return Support::no("serves dropout and ALiBi up to head dim 128");
    if (p.softcap != 0 || p.documents != 0) return Support::no("serves dropout and ALiBi without a cap or packed documents");
    if (p.dropout != 0 && p.alibi) return Support::no("serves dropout or ALiBi, not both");
    if (p.dropout > widest_dropout) return Support::no(fmt::format("serves dropout up to {}, it is {}", widest_dropout, p.dropout));
    if (pass == Pass::backward && p.deterministic) return Support::no("sums dQ of dropout and ALiBi in no fixed order");
  }
  return asks_no_more_than(p, {.softcap = true, .sink = true, .documents = true, .dim_v = true, .dropout = true, .alibi = true});
}

void sm90_forward(const Problem& p, const Forward& t, Context& ctx) {
  Cost cost = capped(p, forward_cost(p), operations_of_cap);
  if (ctx.forecasts()) cost.on_card.units_us = forward_us(p, ctx.device);
  const auto op = ctx.note("attention.flash_sm90.forward", p.precision, cost, Work::attention);
  if (p.lse_shape().count() == 0) return;
  if (p.len_k == 0) return no_keys(p, t, ctx);
  if (!ctx.dry())
    for (auto [name, tensor] : {std::pair{"q", &t.q}, {"k", &t.k}, {"v", &t.v}, {"o", &t.o}}) check_reachable(name, *tensor);
  if (p.precision.dtype == DType::bf16)
    forward_as<__nv_bfloat16>(p, t, ctx);
  else
    forward_as<__half>(p, t, ctx);
}

}  // namespace headroom::attention
