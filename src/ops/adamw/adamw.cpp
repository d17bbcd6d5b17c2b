#include "ops/adamw/adamw.h"

#include <algorithm>

#include "base/divide.h"
#include "gpu/beside.h"
#include "ops/adamw/exact_sum.h"
#include "ops/adamw/impl.h"
#include "ops/quantise/quantise.h"

namespace headroom::adamw {

void start(const Tensor& state, double scale, Context& ctx) {
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<start_cuda>(state, scale, ctx) : start_cpu(state, scale);
}

void set_rate(const Tensor& state, double lr, Context& ctx) {
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<set_cuda>(state, rate, lr, ctx) : set_cpu(state, rate, lr);
}

void set_seed(const Tensor& state, std::uint64_t of_rounding, Context& ctx) {
  if (ctx.dry()) return;
  const double low = double((of_rounding ^ of_rounding >> 32) & 0xffffffffu);
  ctx.on_gpu() ? beside::call<set_cuda>(state, seed, low, ctx) : set_cpu(state, seed, low);
}

double bytes_of_moments(const Update& t) {
  return t.m.dtype == DType::f32 ? 8 : t.m.dtype == DType::bf16 ? 4 : 2 + 2 * 4 / double(moments_block);
}

namespace {

struct Size {
  double elements = 0, grad_bytes = 0, copy_bytes = 0, state_bytes = 0;  // state: of weights and moments
};

void check_moments(const Update& t, std::int64_t count) {
  const bool codes = t.m.dtype == DType::u8;
  for (const Tensor& x : {t.m, t.v})
    check((x.dtype == DType::f32 || x.dtype == DType::bf16 || codes) && x.dtype == t.m.dtype && x.count() == count, Code::bad_argument,
          "adamw: moments must both be fp32, bf16 or uint8 of the gradient's size; one is {} of {} elements, the gradient has {}",
          name_of(x.dtype), x.count(), count);
  for (const Tensor& x : {t.m_scale, t.v_scale})
    check(codes ? x.dtype == DType::f32 && x.count() == ceil_div(count, moments_block) : !x, Code::bad_argument,
          "adamw: moments of {} elements in 8 bits have {} fp32 scales, and others have none", count, ceil_div(count, moments_block));
  check(t.m.dtype == DType::f32 || t.first % moments_block == 0, Code::bad_argument,
        "adamw: moments in {} begin at a multiple of {} elements, not at {}", name_of(t.m.dtype), moments_block, t.first);
}

Size checked(std::span<const Update> all) {
  Size s;
  const Tensor* copy = nullptr;
  for (const Update& t : all) {
    const auto count = t.grad.count();
    check(t.rest || (t.master.dtype == DType::f32 && t.master.count() == count), Code::bad_argument,
          "adamw: a weight must be fp32 of the gradient's size; it is {} of {} elements, the gradient has {}", name_of(t.master.dtype),
          t.master.count(), count);
    check_moments(t, count);
    check(t.grad.dtype == DType::f32 || (t.copy && t.grad.dtype == t.copy.dtype), Code::bad_argument,
          "adamw: a gradient is {}; it must be fp32 or of the weight's copy's type", name_of(t.grad.dtype));
    check(!t.rest || (!t.master && t.copy.dtype == DType::bf16 && t.rest.dtype == DType::u16 && t.rest.count() == count),
          Code::bad_argument, "adamw: a weight without a master is a bf16 copy and a rest of 16 bits, of {} elements each", count);
    check(t.parts >= 1 && t.parts == all[0].parts, Code::bad_argument, "adamw: gradients of {} and of {} parts in one call", t.parts,
          all[0].parts);
    s.elements += double(count);
    s.grad_bytes += t.parts * double(t.grad.bytes());
    s.state_bytes += double(count) * ((t.rest ? 2 * 2 + 2 : 8) + 2 * bytes_of_moments(t));
    if (!t.copy) continue;
    if (!copy) copy = &t.copy;
    check(t.copy.count() == count && t.copy.dtype == copy->dtype, Code::bad_argument,
          "adamw: a copy is {} of {} elements, it must be {} of {}", name_of(t.copy.dtype), t.copy.count(), name_of(copy->dtype), count);
    s.copy_bytes += double(t.copy.bytes());
    check(!t.as_is || (t.transposed && t.copy.shape.rank == 2), Code::bad_argument,
          "adamw: 8-bit copies of a weight are made as it is and transposed, of a copy with rows and columns");
  }
  return s;
}

}  // namespace

std::int64_t* row_of(const Tensor& sums, int rank) { return sums.as<std::int64_t>() + rank * sums.stride[0]; }

Tensor make_sums(int ranks, Context& ctx) { return ctx.arena.make("norm.sums", DType::i64, {ranks, ExactSum::limbs}); }

void squares(std::span<const Update> all, const Tensor& sums, int rank, Context& ctx) {
  const Size size = checked(all);
  check(all.empty() || all[0].parts == 1, Code::bad_argument, "adamw: the parts of a gradient must be added before its norm is taken");
  const auto op = ctx.note("adamw.norm", {DType::f32}, {2 * size.elements, size.grad_bytes, 0, {}, {.launches = 3}}, Work::update);
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<squares_cuda>(all, row_of(sums, rank), ctx) : squares_cpu(all, row_of(sums, rank), ctx);
}

Tensor begin(const Tensor& state, const Hyper& h, Context& ctx, const Tensor& sums, std::int64_t zeros) {
  check(sums || (!h.dynamic_scale && h.clip == 0), Code::bad_argument,
        "adamw: clipping and a dynamic loss scale need the norm of all gradients, which an update in parts does not have");
  const Tensor numbers = ctx.arena.make("adamw.numbers", DType::f32, {std::int64_t(sizeof(Numbers) / sizeof(float)) + zeros});
  if (!ctx.dry()) ctx.on_gpu() ? beside::call<begin_cuda>(state, h, sums, numbers, ctx) : begin_cpu(state, h, sums, numbers);
  return numbers;
}

void quantise_copy(const Update& t, Context& ctx) {
  quantise::quantise({.x = t.copy, .as_is = t.as_is, .transposed = t.transposed, .counts = t.counts}, ctx);
}

namespace {

void advance_weights(std::span<const Update> all, const Tensor& numbers, Context& ctx) {
  const Size size = checked(all);
  const double adding = all.empty() ? 0 : all[0].parts - 1;
  double eight_bits = 0;
  for (const Update& t : all)
    if (writes_copies(t, ctx.device)) eight_bits += double(t.as_is.bytes() + t.transposed.bytes());
  const bool rounds = std::any_of(all.begin(), all.end(), [](const Update& t) { return t.m.dtype != DType::f32; });
  const auto op = ctx.note("adamw", {DType::f32},
                           {(flops_of_element + adding) * size.elements, size.grad_bytes + size.state_bytes + size.copy_bytes + eight_bits},
                           rounds ? Work::rounding_update : Work::update);
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<advance_cuda>(all, numbers, ctx) : advance_cpu(all, numbers, ctx);
}

}  // namespace

void advance(std::span<const Update> all, const Tensor& numbers, Context& ctx) {
  advance_weights(all, numbers, ctx);
  for (const Update& t : all)
    if (t.as_is && !writes_copies(t, ctx.device)) quantise_copy(t, ctx);
}

void update(std::span<const Update> all, const Tensor& state, const Hyper& h, Context& ctx) {
  auto scope = ctx.arena.scope();
  const Tensor sums = make_sums(1, ctx);
  squares(all, sums, 0, ctx);
  advance(all, begin(state, h, ctx, sums), ctx);
}

}  // namespace headroom::adamw
