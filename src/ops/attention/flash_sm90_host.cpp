// flash_sm90 — Hopper's attention, host side: what it serves, how tiles and splits are chosen, tensor maps, launches.
//
// Workspace: nothing, except when there are too few tiles of query rows to fill the card: then the keys are dealt to several
// blocks, and their partial outputs (FP32) and the counters by which the last block adds them up lie in the arena.
#include <algorithm>
#include <climits>

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

// Into how many parts each row's keys are dealt, so that the whole is shortest: rounds of blocks × (key tiles of a part + what a
// block costs anyway) + what adding the parts up costs. In key tiles, from one head of 512 … 65536 on an H200, 2026-11-21.
int best_splits(std::int64_t tiles, std::int64_t key_tiles, int units) {
  constexpr std::int64_t start = 3, most = 32;
  if (tiles * 5 > units * 4) return 1;
  std::int64_t best = 1, best_time = LLONG_MAX;
  for (std::int64_t s = 1; s <= std::min(most, key_tiles); ++s) {
    const std::int64_t together = s == 1 ? 0 : 4 + s / 2;
    const std::int64_t time = divided_up(tiles * s, units) * (divided_up(key_tiles, s) + start) + together;
    if (time < best_time) best = s, best_time = time;
  }
  return int(best);
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

template <class Tiles>
void forward_with(const Problem& p, const Forward& t, Context& ctx) {
  constexpr int rows = Tiles::consumers * 64;
  const std::int64_t row_tiles = divided_up(p.len_q, rows), tiles = row_tiles * p.batch * p.heads;
  const int splits = Tiles::keys < 80 ? 1 : best_splits(tiles, divided_up(p.len_k, Tiles::keys), ctx.device.units);
  check(tiles * splits <= INT_MAX, Code::unsupported, "flash_sm90: {} tiles are too many for one launch", tiles);
  ForwardArgs a{};
  if (splits > 1) {
    a.partial_o = ctx.arena.make("attention.partial_o", DType::f32, {splits, tiles * rows, Tiles::dim}).template as<float>();
    a.partial_lse = ctx.arena.make("attention.partial_lse", DType::f32, {splits, tiles * rows}).template as<float>();
    const Tensor arrivals = ctx.arena.make("attention.arrivals", DType::i32, {tiles * Tiles::consumers});
    a.arrivals = arrivals.as<int>();
    if (!ctx.dry()) cuda(cudaMemsetAsync(arrivals.data, 0, arrivals.bytes(), static_cast<cudaStream_t>(ctx.stream)));
  }
  if (ctx.dry()) return;
  a.q = map_of(t.q, 64), a.k = map_of(t.k, Tiles::keys), a.v = map_of(t.v, Tiles::keys), a.o = map_of(t.o, 64);
  a.o_data = t.o.data, a.o_batch = t.o.stride[0], a.o_row = t.o.stride[1], a.o_head = t.o.stride[2];
  a.lse = t.lse.as<float>();
  a.batch = int(p.batch), a.heads = int(p.heads), a.kv_heads = int(p.kv_heads), a.head_dim = int(p.head_dim);
  a.len_q = int(p.len_q), a.len_k = int(p.len_k);
  const Band band = p.band();  // kept where the sum with a row cannot overflow
  const auto bounded = [](std::int64_t key) { return int(std::clamp<std::int64_t>(key, -(1 << 30), 1 << 30)); };
  a.low = bounded(band.shift - band.behind), a.high = bounded(band.shift + band.ahead);
  a.scale_log2 = p.scale_or_default() * 1.44269504f;
  a.row_tiles = int(row_tiles), a.splits = splits;
  a.units = int(dealt_units(reach_of(p.mask), splits, row_tiles, p.batch * p.heads));
  if (splits > 1)
    start<Split<Tiles>>(a, reach_of(p.mask), ctx);
  else
    start<Tiles>(a, reach_of(p.mask), ctx);
}

template <class T>
void forward_as(const Problem& p, const Forward& t, Context& ctx) {
  const std::int64_t tiles = divided_up(p.len_q, 256) * p.batch * p.heads;
  if (p.head_dim > 128)
    forward_with<Forward256<T>>(p, t, ctx);
  else if (p.head_dim > 64)
    forward_with<Forward128<T>>(p, t, ctx);
  else if (p.len_q <= 1024 && p.len_k <= 1024 && tiles >= ctx.device.units)
    forward_with<Forward64Short<T>>(p, t, ctx);
  else
    forward_with<Forward64<T>>(p, t, ctx);
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
