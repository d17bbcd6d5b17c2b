// flash_simt, flash_sm80 and flash_sm80_fp32, host side: what they serve, scratch, launches.
//
// flash_simt: fp32 in exact arithmetic. flash_sm80: bf16, fp16, and fp32 multiplied as tf32. flash_sm80_fp32: fp32 as three products of tf32.
// Any head dim up to 256 (padded in shared memory to 32, 64, 128 or 256), any strides, any mask. Backward
// recomputes the scores in two kernels (three past head dim 128, but for flash_sm80_fp32): one block per tile of queries for dQ, one per tile of keys
// for dK and dV, so no sums meet in memory and the same bits come out every time. Unless `deterministic` asks for that, fp32 storage up to head dim
// 128, and past it in flash_sm80_fp32, is served by one kernel, a block per tile of keys, which adds its parts of dQ as they come.
// Workspace: none forward, 8 bytes per row and head backward.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <climits>
#include <type_traits>

#include "base/error.h"
#include "gpu/architecture.h"
#include "gpu/beside.h"
#include "ops/attention/documents/documents.h"
#include "ops/attention/impl.h"
#include "ops/attention/mend/mend.h"
#include "ops/attention/on_stream.h"
#include "ops/attention/refusals.h"
#include "ops/attention/sm80/blocks.h"
#include "ops/attention/sm80/blocks_tiles.h"
#include "ops/attention/sm80/paged.h"
#include "ops/attention/units_us.h"

namespace headroom::attention {

namespace {

using namespace blocks;

constexpr std::int64_t statistics_padding = 128;  // no tile is longer

Strided rows_of(const Tensor& t) { return {t.data, t.stride[0], t.stride[1], t.stride[2]}; }

bool starts_and_ends_on_16_bytes(const Tensor& t) {
  const auto whole = [&](std::int64_t elements) { return elements * std::int64_t(size_of(t.dtype)) % 16 == 0; };
  bool all = reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0 && whole(t.shape[3]);
  for (int i = 0; i < 3; ++i) all = all && (t.shape[i] <= 1 || whole(t.stride[std::size_t(i)]));
  return all;
}
template <class... Tensors>
bool wide(const Tensors&... t) {
  return (starts_and_ends_on_16_bytes(t) && ...);
}

Deal deal_of(const Problem& p, std::int64_t len, int rows, std::int64_t pairs, bool of_keys) {
  const std::int64_t tiles = ceil_div(len, rows);
  check(tiles * pairs <= INT_MAX, Code::unsupported, "attention: {} tiles are too many for one launch", tiles * pairs);
  const bool alike = p.band().reach != Reach::before || p.documents > 0;
  return {int(tiles), int(pairs), alike ? Order::by_head : of_keys ? Order::first_tiles_first : Order::last_tiles_first};
}

struct Simt {
  template <int dim>
  using Forward = SimtForward<dim>;
  template <int dim>
  using Backward = SimtBackward<dim>;
  template <int dim>
  using ForwardTight = SimtForwardTight<dim>;
  template <int dim>
  using BackwardTight = SimtBackwardTight<dim>;
  template <int dim>
  using ForwardByPlace = SimtForwardTight<dim>;
  template <int dim>
  using BackwardByPlace = std::conditional_t<dim == 64, SimtBackward<dim>, SimtBackwardTight<dim>>;
  static constexpr const char *forward_name = "attention.flash_simt.forward", *backward_name = "attention.flash_simt.backward";
  static constexpr bool in_tiles = false;
  static constexpr int tf32_products = 0;
  static double units_us(const Problem& p, Pass pass, const Device& device) { return simt_us(p, pass, device); }
  template <class Tiles, ByPlace by_place>
  static void forward(const ForwardArgs& a, cudaStream_t s) {
    beside::call<simt::start_forward<Tiles, by_place>>(a, s);
  }
  template <class Tiles, Wants wants, ByPlace by_place>
  static void backward(const BackwardArgs& a, cudaStream_t s) {
    beside::call<simt::start_backward<Tiles, wants, by_place>>(a, s);
  }
};

template <class T>
struct Sm80 {
  template <int dim>
  using Forward = Sm80Forward<T, dim>;
  template <int dim>
  using Backward = Sm80Backward<T, dim>;
  template <int dim>
  using ForwardTight = Sm80ForwardTight<T, dim>;
  template <int dim>
  using BackwardTight = Sm80BackwardTight<T, dim>;
  template <int dim>
  using ForwardByPlace = std::conditional_t<sizeof(T) == 4 && dim == 256, Sm80ForwardTight<T, dim>, Sm80Forward<T, dim>>;
  template <int dim>
  using BackwardByPlace = std::conditional_t<sizeof(T) == 4 && dim == 256, Sm80BackwardTight<T, dim>, Sm80Backward<T, dim>>;
  static constexpr const char *forward_name = "attention.flash_sm80.forward", *backward_name = "attention.flash_sm80.backward";
  static constexpr bool in_tiles = true;
  static constexpr int tf32_products = 0;
  static double units_us(const Problem& p, Pass pass, const Device& device) { return sm80_us(p, pass, device); }
  template <class Tiles, ByPlace by_place>
  static void forward(const ForwardArgs& a, cudaStream_t s) {
    beside::call<sm80::start_forward<Tiles, by_place>>(a, s);
  }
  template <class Tiles, Wants wants, ByPlace by_place>
  static void backward(const BackwardArgs& a, cudaStream_t s) {
    beside::call<sm80::start_backward<Tiles, wants, by_place>>(a, s);
  }
};

struct Sm80InParts {  // without dropout and ALiBi
  template <int dim>
  using Forward = Sm80PartsForward<dim>;
  template <int dim>
  using ForwardTight = Sm80PartsForwardTight<dim>;
  template <int dim>
  using Backward = Sm80PartsBackward<dim>;
  template <int dim>
  using BackwardTight = Sm80PartsBackwardTight<dim>;
  static constexpr const char *forward_name = "attention.flash_sm80_fp32.forward", *backward_name = "attention.flash_sm80_fp32.backward";
  static constexpr bool in_tiles = false;  // tf32's rates do not hold: it has its own
  static constexpr int tf32_products = 3;
  static double units_us(const Problem& p, Pass pass, const Device& device) { return sm80_fp32_us(p, pass, device); }
  template <class Tiles, ByPlace by_place>
  static void forward(const ForwardArgs& a, cudaStream_t s) {
    beside::call<sm80::start_forward<Tiles, by_place>>(a, s);
  }
  template <class Tiles, Wants wants, ByPlace by_place>
  static void backward(const BackwardArgs& a, cudaStream_t s) {
    beside::call<sm80::start_backward<Tiles, wants, by_place>>(a, s);
  }
};

// The narrower of keys and values is padded to the other's tile: its columns are zeros in shared memory.
template <class Body>
void with_dim(const Problem& p, Body&& body) {
  const std::int64_t dim = std::max(p.head_dim, p.value_dim());
  if (dim <= 32) return body.template operator()<32>();
  if (dim <= 64) return body.template operator()<64>();
  if (dim <= 128) return body.template operator()<128>();
  body.template operator()<256>();
}
template <class Body>
void with_sm80(const Problem& p, Body&& body) {
  if (p.precision.dtype == DType::bf16) return body.template operator()<Sm80<__nv_bfloat16>>();
  if (p.precision.dtype == DType::f16) return body.template operator()<Sm80<__half>>();
  body.template operator()<Sm80<float>>();
}

constexpr int least_shared_bytes = 99 * 1024;  // what every architecture from sm_80 on allows a block
int shared_bytes_of(int sm) { return architecture_of(sm).shared_bytes; }

// For dropout and ALiBi there is one shape for every card, and dims up to 64 share one: fewer kernels to compile.
template <class Body>
void with_dim_by_place(const Problem& p, Body&& body) {
  const std::int64_t dim = std::max(p.head_dim, p.value_dim());
  if (dim <= 64) return body.template operator()<64>();
  if (dim <= 128) return body.template operator()<128>();
  body.template operator()<256>();
}

// The tiles of a pass on this device: the tuned ones, or where these need more shared memory than it has, the tight ones. The body is told
// whether they are those of what depends on a score's place.
template <class Family, class Body>
void with_forward_tiles(const Problem& p, const Device& device, Body&& body) {
  if constexpr (requires { typename Family::template ForwardByPlace<64>; })
    if (p.asks_by_place())
      return with_dim_by_place(p, [&]<int dim>() {
        using Tiles = typename Family::template ForwardByPlace<dim>;
        static_assert(forward_shared_bytes<Tiles>() <= least_shared_bytes);
        p.alibi ? body.template operator()<Tiles, ByPlace::alibi>() : body.template operator()<Tiles, ByPlace::dropout>();
      });
  with_dim(p, [&]<int dim>() {
    using Tiles = typename Family::template Forward<dim>;
    if constexpr (forward_shared_bytes<Tiles>() > least_shared_bytes)
      if (forward_shared_bytes<Tiles>() > shared_bytes_of(device.sm))
        return body.template operator()<typename Family::template ForwardTight<dim>, ByPlace::nothing>();
    body.template operator()<Tiles, ByPlace::nothing>();
  });
}
template <class Family, class Body>
void with_backward_tiles(const Problem& p, const Device& device, Body&& body) {
  if constexpr (requires { typename Family::template BackwardByPlace<64>; })
    if (p.asks_by_place())
      return with_dim_by_place(p, [&]<int dim>() {
        using Tiles = typename Family::template BackwardByPlace<dim>;
        static_assert(backward_shared_bytes<Tiles>() <= least_shared_bytes);
        p.alibi ? body.template operator()<Tiles, ByPlace::alibi>() : body.template operator()<Tiles, ByPlace::dropout>();
      });
  with_dim(p, [&]<int dim>() {
    using Tiles = typename Family::template Backward<dim>;
    if constexpr (backward_shared_bytes<Tiles>() > least_shared_bytes)
      if (backward_shared_bytes<Tiles>() > shared_bytes_of(device.sm))
        return body.template operator()<typename Family::template BackwardTight<dim>, ByPlace::nothing>();
    body.template operator()<Tiles, ByPlace::nothing>();
  });
}

Support on_cuda(const Problem& p, const Device& device, Pass pass) {
  // Soft capping, sinks, documents, values of another dimension, pages, dropout and slopes are all served.
  return first_refusal({p, device, pass}, {needs_kernels, needs_lengths_in_32_bits, needs_dims_up_to_256, pages_are_of_a_cache});
}

// The band that kernels are handed: of the first row of the batch, they go on to the others.
BandOf<int> band_for(const Problem& p, const Lists& lists) { return in_32_bits(band_of(p, lists, 0)); }

// A cap is formed exactly, after a tile's product and before its exponentials: as long as so many operations in FP32 (docs/performance.md).
constexpr double operations_of_cap = 82;
constexpr double operations_of_caps_a_us = 28e6;  // in FP32 and tf32; no kernel was timed with caps: by steps of Gemma 2

template <class Family>
Cost cost_here(const Problem& p, const Cost& cost, const Context& ctx, Pass pass) {
  const Device& device = ctx.device;
  Cost here = capped(p, cost, operations_of_cap * (pass == Pass::backward ? 2 : 1));  // formed for dQ, and again for dK and dV
  here.on_card.tf32_products = Family::tf32_products;
  here.on_card.older =
      Family::in_tiles && device.sm >= 90 && device.sm < 120;  // these have instructions for products that this kernel does not use
  if (!ctx.forecasts()) return here;
  here.on_card.units_us = Family::units_us(p, pass, device);
  if (size_of(p.precision.dtype) == 4 && here.on_card.units_us > 0) here.on_card.units_us += here.on_card.in_turn / operations_of_caps_a_us;
  return here;
}

template <class Family>
void forward_with(const Problem& p, const Forward& t, Context& ctx) {
  const auto op = ctx.note(Family::forward_name, p.precision, cost_here<Family>(p, forward_cost(p), ctx, Pass::forward), Work::attention);
  if (p.lse_shape().count() == 0) return;
  if (p.len_k == 0) return no_keys(p, t, ctx);
  const Lists lists = make_lists(p, ctx);
  list_documents_on_gpu(p, t.with, lists, ctx);
  with_forward_tiles<Family>(p, ctx.device, [&]<class Tiles, ByPlace by_place>() {
    const Deal deal = deal_of(p, p.len_q, Tiles::rows, p.batch * p.heads, false);
    if (ctx.dry()) return;
    Family::template forward<Tiles, by_place>({.q = rows_of(t.q),
                                               .k = rows_of(t.k),
                                               .v = rows_of(t.v),
                                               .o = rows_of(t.o),
                                               .lse = t.lse.as<float>(),
                                               .sink = p.sink ? t.with.sink.as<float>() : nullptr,
                                               .paged = blocks::paged_of(p, t.with),
                                               .band = band_for(p, lists),
                                               .deal = deal,
                                               .heads = int(p.heads),
                                               .group = int(p.group()),
                                               .head_dim = int(p.head_dim),
                                               .dim_v = int(p.value_dim()),
                                               .scale = p.scale_or_default(),
                                               .cap = p.softcap,
                                               .wide = wide(t.q, t.k, t.v, t.o),
                                               .not_numbers = not_numbers_of(lists),
                                               .dropout = dropout_of(p, t.with),
                                               .alibi = alibi_of(p, t.with)},
                                              cuda_stream(ctx.stream));
  });
  mend_forward_on_gpu(p, t, lists, ctx);
}

template <class T>
void zero(const Tensor& t, cudaStream_t stream) {
  if (t.count() > 0) beside::call<start_zero<T>>({rows_of(t), int(t.shape[3]), int(t.shape[1])}, int(t.shape[0]), int(t.shape[2]), stream);
}

template <class Family>
void backward_with(const Problem& p, const Backward& t, Context& ctx) {
  using T = typename Family::template Backward<32>::T;
  Cost cost = cost_here<Family>(p, backward_cost(p), ctx, Pass::backward);
  cost.on_card.launches = 3;  // row sums, dQ, dK with dV
  const auto op = ctx.note(Family::backward_name, p.precision, cost, Work::attention, Making::gradients);
  const auto stream = cuda_stream(ctx.stream);
  if (p.q_shape().count() == 0 || p.k_shape().count() == 0) {
    if (ctx.dry()) return;
    for (const Tensor* gradient : {&t.dq, &t.dk, &t.dv}) zero<T>(*gradient, stream);
    if (t.dsink) sum_dsink_on_gpu(p, t.with.sink, t.lse, without_keys(p, t), t.dsink, ctx);
    return;
  }
  const Lists lists = make_lists(p, ctx);
  list_documents_on_gpu(p, t.with, lists, ctx);
  const std::int64_t pairs = p.batch * p.heads, padded = round_up(p.len_q, statistics_padding);
  const Tensor lse = ctx.arena.make("attention.lse_log2", DType::f32, {pairs, padded});
  const Tensor delta = ctx.arena.make("attention.delta", DType::f32, {pairs, padded});
  check(pairs * padded / 8 <= INT_MAX, Code::unsupported, "attention: {} rows are too many for one launch", pairs * padded);
  with_backward_tiles<Family>(p, ctx.device, [&]<class Tiles, ByPlace by_place>() {
    constexpr bool together = Tiles::dim <= 128 || Tiles::across;  // past it both sums do not fit the registers of four warps
    constexpr bool adds_dq =
        together && sizeof(T) == 4 &&
        by_place == ByPlace::nothing;  // in 16 bits the additions cost more than two products: bench/lab/attention_fp32.md
    const Deal queries = deal_of(p, p.len_q, Tiles::rows, pairs, false),
               keys = deal_of(p, p.len_k, Tiles::rows, p.batch * p.kv_heads, true);
    if (ctx.dry()) return;
    beside::call<start_statistics<T>>({.o = rows_of(t.o),
                                       .d_o = rows_of(t.d_o),
                                       .lse = t.lse.as<float>(),
                                       .dlse = t.dlse ? t.dlse.as<float>() : nullptr,
                                       .lse_log2 = lse.as<float>(),
                                       .delta = delta.as<float>(),
                                       .heads = int(p.heads),
                                       .dim_v = int(p.value_dim()),
                                       .len_q = int(p.len_q),
                                       .padded = int(padded)},
                                      int(pairs), stream);
    if (t.dsink)
      sum_dsink_on_gpu(p, t.with.sink, t.lse, {.delta = delta.as<float>(), .sign = 1, .padded = padded, .in_sixteens = false}, t.dsink,
                       ctx);
    BackwardArgs a{.q = rows_of(t.q),
                   .k = rows_of(t.k),
                   .v = rows_of(t.v),
                   .d_o = rows_of(t.d_o),
                   .dq = rows_of(t.dq),
                   .dk = rows_of(t.dk),
                   .dv = rows_of(t.dv),
                   .lse = lse.as<float>(),
                   .delta = delta.as<float>(),
                   .band = band_for(p, lists),
                   .deal = keys,
                   .heads = int(p.heads),
                   .group = int(p.group()),
                   .head_dim = int(p.head_dim),
                   .dim_v = int(p.value_dim()),
                   .padded = int(padded),
                   .scale = p.scale_or_default(),
                   .cap = p.softcap,
                   .wide = wide(t.q, t.k, t.v, t.d_o, t.dq, t.dk, t.dv),
                   .not_numbers = not_numbers_of(lists),
                   .dropout = dropout_of(p, t.with),
                   .alibi = alibi_of(p, t.with)};
    if constexpr (adds_dq)
      if (!p.deterministic && fused_shared_bytes<Tiles>() <= shared_bytes_of(ctx.device.sm)) {
        zero<T>(t.dq, stream);
        return Family::template backward<Tiles, Wants::all, by_place>(a, stream);
      }
    if constexpr (together) {
      Family::template backward<Tiles, Wants::dk_dv, by_place>(a, stream);
    } else {
      Family::template backward<Tiles, Wants::dk, by_place>(a, stream);
      Family::template backward<Tiles, Wants::dv, by_place>(a, stream);
    }
    a.deal = queries;
    Family::template backward<Tiles, Wants::dq, by_place>(a, stream);
  });
  mend_backward_on_gpu(p, t, lists, ctx);
}

}  // namespace

Support simt_supports(const Problem& p, const Device& device, Pass pass) {
  if (Support s = on_cuda(p, device, pass); !s) return s;
  if (p.precision != Precision{DType::f32, Math::exact})
    return Support::no(fmt::format("needs exact fp32, {} was asked", name_of(p.precision)));
  return {};
}
void simt_forward(const Problem& p, const Forward& t, Context& ctx) { forward_with<Simt>(p, t, ctx); }
void simt_backward(const Problem& p, const Backward& t, Context& ctx) { backward_with<Simt>(p, t, ctx); }

// One kernel serves both passes: P is right where LSE has the same rounding in it as the scores that backward forms again. With flash_simt's backward, scores
// of -1000 and beyond made dV's error 7.5 times that of one kernel (random case 67 of tests/ops/attention/attention_gpu_test.cpp, H200, 2026-11-28).
template <int dim>
constexpr bool same_scores() {
  return Sm80PartsBackward<dim>::steps_s == Sm80PartsForward<dim>::steps_s;
}
static_assert(same_scores<32>() && same_scores<64>() && same_scores<128>() && same_scores<256>() &&
              Sm80PartsBackwardTight<256>::steps_s == Sm80PartsForwardTight<256>::steps_s);

// Three products of tf32 are faster than one of fp32 where tf32 is four times as fast at least. It is not on desktop cards and on an H20, whose
// ceilings say so.
bool tf32_is_fast(const Device& device) {
  const Ceilings& c = device.ceilings;
  const bool slow = c.tf32_flops > 0 && c.fp32_flops > 0 && c.tf32_flops < 4 * c.fp32_flops;
  return !slow && architecture_of(device.sm).tf32_flops >= 1024;
}
Support sm80_fp32_supports(const Problem& p, const Device& device, Pass pass) {
  if (Support s = simt_supports(p, device, pass); !s) return s;
  if (!tf32_is_fast(device)) return Support::no("needs tf32 that is four times as fast as fp32");
  const Features known{.softcap = true, .sink = true, .documents = true, .dim_v = true, .pages = true};
  if (Support s = asks_no_more_than(p, known); !s) return s;
  return needs_positive_scale({p, device, pass});
}
void sm80_fp32_forward(const Problem& p, const Forward& t, Context& ctx) { forward_with<Sm80InParts>(p, t, ctx); }
void sm80_fp32_backward(const Problem& p, const Backward& t, Context& ctx) { backward_with<Sm80InParts>(p, t, ctx); }

Support sm80_supports(const Problem& p, const Device& device, Pass pass) {
  if (Support s = on_cuda(p, device, pass); !s) return s;
  const bool served =
      p.precision.dtype == DType::bf16 || p.precision.dtype == DType::f16 || p.precision == Precision{DType::f32, Math::tf32};
  if (!served) return Support::no(fmt::format("needs bf16, fp16 or tf32, {} was asked", name_of(p.precision)));
  return needs_positive_scale({p, device, pass});
}
void sm80_forward(const Problem& p, const Forward& t, Context& ctx) {
  with_sm80(p, [&]<class Family>() { forward_with<Family>(p, t, ctx); });
}
void sm80_backward(const Problem& p, const Backward& t, Context& ctx) {
  with_sm80(p, [&]<class Family>() { backward_with<Family>(p, t, ctx); });
}

}  // namespace headroom::attention
