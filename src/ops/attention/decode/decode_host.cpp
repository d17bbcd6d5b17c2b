// flash_decode — a few new positions against a cache of keys and values, host side: what it serves, how its work is dealt, scratch.
//
// A dense cache of up to 8 rows a key head has kernels and a choice of its own (dense_deal.cpp): there a cluster is one block.
// Workspace: none where each cluster of blocks walks whole units of one length; else two partial outputs (FP32) for each cluster, with maxima and sums;
// for each of the eight heads of a block, where blocks take eight.
// Backward is flash_sm90's or flash_sm80's: they need O and LSE alone, from any variant.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numbers>

#include "base/random.h"
#include "gpu/architecture.h"
#include "gpu/beside.h"
#include "ops/attention/decode/decode.h"
#include "ops/attention/decode/dense_deal.h"
#include "ops/attention/impl.h"
#include "ops/attention/on_stream.h"
#include "ops/attention/refusals.h"
#include "ops/attention/sm80/paged.h"
#include "ops/attention/sm90/tensors.h"

namespace headroom::attention {

namespace {

using namespace decode;

constexpr std::int64_t most_positions = 16, most_rows_beside_hopper = 64;

int dim_of(const Problem& p) {
  const std::int64_t dim = std::max(p.head_dim, p.value_dim());
  return dim <= 64 ? 64 : dim <= 128 ? 128 : 256;
}
std::int64_t keys_of(const Problem& p) {  // the most that any row of a sequence sees
  if (p.documents != 0) return p.len_k;
  const Band band = p.band();
  return std::max<std::int64_t>(band.last(p.len_q - 1) - band.first(0), 0);
}
double bytes_read(const Problem& p) { return 2.0 * double(p.batch * p.kv_heads * keys_of(p) * (p.head_dim + p.value_dim())); }
// Costs and choices here were measured on an H200; another card is taken for one of its own number of multiprocessors.
const Architecture& measured() { return architecture_of(90); }
bool in_l2(double bytes) { return bytes <= measured().l2_bytes; }

// Whether a block of 8 rows is the faster way. At head dim 128 it was 1 to 4 % behind one of 16 where memory is the limit and blocks have whole units.
bool few_rows(const Problem& p) {
  if (p.group() * p.len_q > 8) return false;
  return dim_of(p) != 128 || in_l2(bytes_read(p)) || p.batch * p.kv_heads < 32;
}

// f(Shape) of the smallest block that serves the problem.
template <class F>
auto with_shape(const Problem& p, F&& f) {
  const std::int64_t rows = p.group() * p.len_q;
  const auto of_dim = [&]<int dim>() {
    return few_rows(p) ? f(Shape<dim, 8>{}) : rows <= 16 ? f(Shape<dim, 16>{}) : rows <= 32 ? f(Shape<dim, 32>{}) : f(Shape<dim, 64>{});
  };
  switch (dim_of(p)) {
    case 64: return of_dim.template operator()<64>();
    case 128: return of_dim.template operator()<128>();
    default: return of_dim.template operator()<256>();
  }
}
struct BlockSizes {
  int rows, step_keys, shared_bytes;
};
BlockSizes sizes_of(const Problem& p) {
  return with_shape(p, []<class S>(S) { return BlockSizes{S::rows, S::step_keys, S::shared_bytes}; });
}

// How the line is dealt: `clusters` of `cluster` blocks each.
struct Clusters {
  int cluster;
  std::int64_t clusters, steps;  // steps: of one unit, where all sequences are alike
};

constexpr int clusters_tried[] = {1, 2, 3, 4, 6, 8, 16};  // blocks of a cluster

bool whole_units(std::int64_t units, std::int64_t clusters) { return units % clusters == 0; }

// What a deal costs beside the memory's rate, in µs; fitted to times of one H200 (bench/lab/attention_decode.md).
struct Costs {
  double spread;                 // few blocks do not reach the memory's rate: its power of their share
  double step;                   // from the keys of a step to those of the next one:
  bool step_beside;              //   beside the memory's time, or in its place where it is longer
  double parts_meet, part, cut;  // parts of a unit have a way to go; units that are cut anywhere
  double block_ends = 0.2, block_goes_on = 1, cluster_ends = 0.4, rank_ends = 0.05,
         cluster_goes_on = 3.5;  // a cluster's blocks meet where a unit ends
};
constexpr Costs of_few_rows{.spread = 0.2, .step = 0.2, .step_beside = true, .parts_meet = 4.5, .part = 0.2, .cut = 5, .rank_ends = 0.02},
    of_rows{.spread = 0.45, .step = 0.45, .step_beside = false, .parts_meet = 1.5, .part = 0.4, .cut = 5};
// Where two clusters of 16 share a part of the card that has room for one alone, and the keys and values are more than L2 holds, these two are last.
constexpr double sixteen_together = 1.35;

// The deal that takes least. Every cluster walks as many whole units, or as many parts of units, or units are cut anywhere and all clusters that run at once
// walk as far.
Clusters deal_of(const Problem& p, const Device& device, std::int64_t units) {
  constexpr int kept_by_cuda = 1024;  // bytes of shared memory of each block
  const Architecture& card = measured();
  const double rate = card.cache_read_bytes_per_us / card.clusters_of_units;  // bytes a µs and multiprocessor
  const BlockSizes sizes = sizes_of(p);
  const int rows = sizes.rows, step_keys = sizes.step_keys, shared_bytes = sizes.shared_bytes;
  const Costs& costs = rows == 8 ? of_few_rows : of_rows;
  const int at_once =
      dim_of(p) == 256 ? 1 : std::clamp((architecture_of(device.sm).shared_bytes + kept_by_cuda) / (shared_bytes + kept_by_cuda), 1, 2);
  const int multiprocessors = std::max(device.units, 1);  // what nothing here serves is counted as on a machine without any
  const std::int64_t keys = keys_of(p), most = std::int64_t(multiprocessors) * at_once;
  const double step_bytes = 2.0 * step_keys * double(p.head_dim + p.value_dim());
  const auto at_once_of = [&](int cluster, bool two_share) {  // clusters of so many blocks
    return multiprocessors * (two_share ? card.shared_clusters_at_once : card.clusters_at_once)[std::size_t(cluster - 1)] /
           card.clusters_of_units;
  };
  Clusters best{};
  double least = 0;
  const auto try_deal = [&](int cluster, std::int64_t clusters, std::int64_t steps) {
    if (clusters == 0) return;
    const std::int64_t walked = ceil_div(units * steps, clusters);
    const double busy = std::min(double(clusters * cluster) / (0.96 * double(most)), 1.0);
    const double bytes = double(walked * clusters * cluster) * step_bytes, steps_take = costs.step * double(walked);
    double time = bytes / (rate * double(multiprocessors) * std::pow(busy, costs.spread));
    if (rows == 8 && cluster == 16 && clusters > at_once_of(16, false) && !in_l2(bytes)) time *= sixteen_together;
    time = costs.step_beside ? time + steps_take : std::max(time, steps_take);
    const double more_units = std::max(double(walked) / double(steps) - 1, 0.0);
    time += cluster == 1 ? costs.block_ends + more_units * costs.block_goes_on
                         : costs.cluster_ends + costs.rank_ends * cluster + more_units * costs.cluster_goes_on;
    if (!whole_units(units, clusters)) {
      const bool alike = clusters % units == 0 && steps % (clusters / units) == 0;
      time += costs.parts_meet + costs.part * double(ceil_div(steps, walked)) + (alike ? 0 : costs.cut);
    }
    if (best.cluster == 0 || time < least) best = {cluster, clusters, steps}, least = time;
  };
  for (const int cluster : clusters_tried) {
    const std::int64_t steps = std::max<std::int64_t>(ceil_div(keys, step_keys * cluster), 1),
                       fit = cluster == 1 ? most : at_once_of(cluster, at_once == 2);
    if (cluster > 1 && (device.sm != 90 || fit == 0 || ceil_div(keys, step_keys) < cluster)) break;
    try_deal(cluster, ceil_div(units, ceil_div(units, fit)), steps);
    if (cluster > 2) continue;  // larger ones were not faster where units are cut
    try_deal(cluster, std::min(fit / units, steps) * units, steps);
    try_deal(cluster, std::min(fit, units * steps), steps);
  }
  check(units * best.steps < (1ll << 31), Code::unsupported, "flash_decode: {} steps of {} keys are too many for one launch",
        units * best.steps, step_keys * best.cluster);
  return best;
}

Strided strided(const Tensor& t) { return {t.data, t.stride[0], t.stride[1], t.stride[2]}; }
void check_reached(const char* name, const Tensor& t) {  // 16 bytes at a time
  check(reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0, Code::unsupported,
        "flash_decode: {} must start on 16 bytes; copy it, or ask for flash_sm80", name);
  for (int i = 0; i < 3; ++i)
    check(t.shape[i] <= 1 || t.stride[std::size_t(i)] % 8 == 0, Code::unsupported,
          "flash_decode: {} has stride {} in dimension {}, it must be a multiple of 8 elements; copy it, or ask for flash_sm80", name,
          t.stride[std::size_t(i)], i);
}

// Whether the copy engine can walk it; what check_reached lets through otherwise is copied by threads.
bool boxes_reach(const Tensor& t) {
  for (int i = 0; i < 3; ++i)
    if (const std::int64_t stride = t.stride[std::size_t(i)]; t.shape[i] > 1 && (stride <= 0 || stride >= 1ll << 39)) return false;
  return true;
}

template <class T, int dim>
void run_dense(const DenseDeal& deal, const Args& a, cudaStream_t stream) {
  if (deal.warps == 16) return beside::call<start_dense<T, DenseShape<dim, 16, 1>>>(a, stream);
  return deal.a_multiprocessor == 2 ? beside::call<start_dense<T, DenseShape<dim, 8, 2>>>(a, stream)
                                    : beside::call<start_dense<T, DenseShape<dim, 8, 1>>>(a, stream);
}
template <class T>
void run_dense(const DenseDeal& deal, int dim, const Args& a, cudaStream_t stream) {
  return dim == 64 ? run_dense<T, 64>(deal, a, stream) : run_dense<T, 128>(deal, a, stream);
}

// Sixteen positions of eight heads at once: a head's panels of 64 columns one behind another, as boxes of one head have them.
Map map_of_heads(const Tensor& t) {  // [batch, len, heads, dim] → (64 columns, len, panels where there are two, heads, batch)
  const auto stride = [&](int i) { return std::uint64_t(t.shape[i] > 1 ? t.stride[std::size_t(i)] : 8); };
  const auto size = [&](int i) { return std::uint64_t(t.shape[i]); };
  const MapType type = t.dtype == DType::f16 ? MapType::f16 : MapType::bf16;
  if (t.shape[3] == panel_columns)
    return make_map(t.data, type,
                    {.rank = 4,
                     .dim = {size(3), size(1), size(2), size(0)},
                     .stride = {1, stride(1), stride(2), stride(0)},
                     .box = {panel_columns, keys_of_heads, heads_of_block, 1},
                     .in_pairs = false});
  return make_map(t.data, type,
                  {.rank = 5,
                   .dim = {panel_columns, size(1), size(3) / panel_columns, size(2), size(0)},
                   .stride = {1, stride(1), panel_columns, stride(2), stride(0)},
                   .box = {panel_columns, keys_of_heads, std::uint32_t(size(3) / panel_columns), heads_of_block, 1},
                   .in_pairs = false});
}
template <class T>
void run_heads(int dim, const BoxArgs& b, cudaStream_t stream) {
  using S = HeadsShape<64>;
  static_assert(S::warps == heads_of_block && S::step_keys == keys_of_heads && S::most_parts == most_parts_of_heads);
  return dim == 64 ? beside::call<start_heads<T, HeadsShape<64>>>(b, stream) : beside::call<start_heads<T, HeadsShape<128>>>(b, stream);
}
void run_heads(Args a, const Forward& t, std::int64_t blocks, std::int64_t keys, DType dtype, cudaStream_t stream) {
  a.clusters = int(blocks);
  a.by_clusters = Divisor::of(unsigned(blocks));
  a.span = keys_of_heads;
  a.by_span = Divisor::of(keys_of_heads);
  a.by_steps = Divisor::of(unsigned(ceil_div<std::int64_t>(keys, keys_of_heads)));
  a.by_units = Divisor::of(unsigned(a.kv_heads / heads_of_block));
  const BoxArgs b{a, map_of_heads(t.k), map_of_heads(t.v)};
  return dtype == DType::bf16 ? run_heads<__nv_bfloat16>(a.head_dim, b, stream) : run_heads<__half>(a.head_dim, b, stream);
}

std::uint64_t next_number() {  // a launch's; never 0
  static std::atomic<std::uint64_t> launches{0};
  const std::uint64_t number = Random{.seed = 0x6465636f6465}.bits(launches++);
  return number ? number : 1;
}

}  // namespace

Support decode_supports(const Problem& p, const Device& device, Pass pass) {
  if (pass == Pass::backward) {
    const Support forward = decode_supports(p, device, Pass::forward);
    return !forward || sm90_supports(p, device, pass) ? forward : sm80_supports(p, device, pass);
  }
  const Asked asked{p, device, pass};
  if (Support s = first_refusal(asked, {needs_kernels, needs_16_bits}); !s) return s;
  if (p.len_q > most_positions) return Support::no(fmt::format("serves up to {} new positions, there are {}", most_positions, p.len_q));
  const Features known{.softcap = true, .sink = true, .documents = true, .dim_v = true, .pages = true};
  if (Support s = first_refusal(asked, {needs_lengths_in_32_bits, needs_dims_of_16_bytes, needs_dims_up_to_256, needs_positive_scale}); !s)
    return s;
  if (Support s = asks_no_more_than(p, known); !s) return s;
  if (const int bytes = sizes_of(p).shared_bytes; bytes > architecture_of(device.sm).shared_bytes)
    return Support::no(
        fmt::format("needs {} bytes of shared memory a block, this card has {}", bytes, architecture_of(device.sm).shared_bytes));
  const std::int64_t rows = p.group() * p.len_q;
  if (rows > most_rows_beside_hopper && sm90_supports(p, device, pass))
    return Support::no(fmt::format("leaves {} rows for each key head to flash_sm90", rows));
  return {};
}

void decode_forward(const Problem& p, const Forward& t, Context& ctx) {
  const auto op = ctx.note("attention.flash_decode.forward", p.precision, forward_cost(p), Work::attention);
  if (p.lse_shape().count() == 0) return;
  if (p.len_k == 0) return no_keys(p, t, ctx);
  const std::optional<DenseDeal> dense = dense_deal_of(p, ctx.device);
  const int dim = dim_of(p), block_rows = dense ? 8 : sizes_of(p).rows, step_keys = dense ? 16 * dense->warps : sizes_of(p).step_keys;
  const std::int64_t rows = p.group() * p.len_q, row_blocks = ceil_div(rows, block_rows), units = p.batch * p.kv_heads * row_blocks;
  const Clusters deal =
      dense ? Clusters{1, dense->blocks, std::max<std::int64_t>(ceil_div(keys_of(p), step_keys), 1)} : deal_of(p, ctx.device, units);
  const std::int64_t kept_rows = std::min<std::int64_t>(rows, block_rows);
  const std::optional<std::int64_t> heads_blocks = heads_blocks_of(p, ctx.device);  // their scratch does not ask where heads lie
  const std::int64_t parts = p.documents != 0 || !whole_units(units, deal.clusters) ? 2 * deal.clusters : 0,
                     parts_of_heads =
                         heads_blocks && !whole_units(units / heads_of_block, *heads_blocks) ? 2 * *heads_blocks * heads_of_block : 0;
  Tensor words;
  if (const std::int64_t most = std::max(parts, parts_of_heads))
    words = ctx.arena.make("attention.partial_o", DType::f32, {most, kept_rows, dim / 2 + 1, 4});
  if (ctx.dry()) return;
  for (auto [name, tensor] : {std::pair{"q", &t.q}, {"k", &t.k}, {"v", &t.v}, {"o", &t.o}}) check_reached(name, *tensor);
  Args a{.q = strided(t.q),
         .k = strided(t.k),
         .v = strided(t.v),
         .o = strided(t.o),
         .lse = t.lse.as<float>(),
         .sink = p.sink ? t.with.sink.as<float>() : nullptr,
         .paged = blocks::paged_of(p, t.with),
         .by_page = Divisor::of(unsigned(std::max<std::int64_t>(p.page, 1))),
         .band = in_32_bits(p.band()),
         .documents = {},
         .batch = int(p.batch),
         .heads = int(p.heads),
         .kv_heads = int(p.kv_heads),
         .group = int(p.group()),
         .rows = int(rows),
         .row_blocks = int(row_blocks),
         .head_dim = int(p.head_dim),
         .dim_v = int(p.value_dim()),
         .scale_log2 = (p.softcap == 0 ? p.scale_or_default() : p.softcap) * std::numbers::log2e_v<float>,
         .to_cap = p.softcap == 0 ? 0 : p.scale_or_default() / p.softcap,
         .slack = 8 / ((p.softcap == 0 ? p.scale_or_default() : p.softcap) * std::numbers::log2e_v<float>),
         .cluster = deal.cluster,
         .clusters = int(deal.clusters),
         .span = step_keys * deal.cluster,
         .by_span = Divisor::of(unsigned(step_keys * deal.cluster)),
         .by_units = Divisor::of(unsigned(p.kv_heads * row_blocks)),
         .by_steps = Divisor::of(unsigned(deal.steps)),
         .by_clusters = Divisor::of(unsigned(deal.clusters)),
         .by_group = Divisor::of(unsigned(p.group())),
         .by_row_blocks = Divisor::of(unsigned(row_blocks)),
         .early = ctx.device.sm == 90,
         .words = static_cast<Word*>(words.data),
         .kept_rows = int(kept_rows),
         .units = {.apart = false, .batches = 0, .more = 1},
         .number = next_number()};
  if (p.kv_heads * row_blocks == 1) a.units = {.apart = false, .batches = 1, .more = 0};
  // Blocks that walk several whole units take them side by side: the key heads of a sequence lie beside each other in memory, and are read at the same time.
  if (const std::int64_t of_sequence = p.kv_heads * row_blocks; dense && whole_units(units, deal.clusters) && units > deal.clusters)
    a.units = {.apart = true, .batches = int(deal.clusters / of_sequence), .more = int(deal.clusters % of_sequence)};
  const auto lie_beside = [](const Tensor& x) { return x.stride[2] == x.shape[3] && boxes_reach(x); };
  if (heads_blocks && lie_beside(t.k) && lie_beside(t.v))
    return run_heads(a, t, *heads_blocks, keys_of(p), p.precision.dtype, cuda_stream(ctx.stream));
  if (dense)
    return p.precision.dtype == DType::bf16 ? run_dense<__nv_bfloat16>(*dense, dim, a, cuda_stream(ctx.stream))
                                            : run_dense<__half>(*dense, dim, a, cuda_stream(ctx.stream));
  if (p.documents) a.documents = documents_args(p, t.with, {});
  const bool in_boxes = ctx.device.sm == 90 && in_l2(bytes_read(p)) && boxes_reach(t.k) && boxes_reach(t.v) &&
                        (p.page == 0 || (p.page % box_keys == 0 && p.mask.kind != MaskKind::window));  // a window begins anywhere in a page
  with_shape(p, [&]<class S>(S) {
    if constexpr (S::rows == 8 && S::dim == 128)
      if (in_boxes) {
        const BoxArgs boxes{a, sm90::map_of(t.k, box_keys), sm90::map_of(t.v, box_keys)};
        return p.precision.dtype == DType::bf16 ? beside::call<start_boxes<__nv_bfloat16, S>>(boxes, cuda_stream(ctx.stream))
                                                : beside::call<start_boxes<__half, S>>(boxes, cuda_stream(ctx.stream));
      }
    return p.precision.dtype == DType::bf16 ? beside::call<start<__nv_bfloat16, S>>(a, cuda_stream(ctx.stream))
                                            : beside::call<start<__half, S>>(a, cuda_stream(ctx.stream));
  });
}

void decode_backward(const Problem& p, const Backward& t, Context& ctx) {
  return sm90_supports(p, ctx.device, Pass::backward) ? sm90_backward(p, t, ctx) : sm80_backward(p, t, ctx);
}

}  // namespace headroom::attention
