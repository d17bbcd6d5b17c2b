#include "ops/quantise/quantise.h"

#include "gpu/beside.h"
#include "ops/quantise/impl.h"

namespace headroom::quantise {

namespace {

bool eight_bits(DType t) { return t == DType::e4m3 || t == DType::e5m2; }

}  // namespace

void check_copy(const Scaled& y, std::int64_t lines, std::int64_t k, const char* op, const char* which) {
  check(eight_bits(y.values.dtype) && y.values.shape == Shape({lines, k}) && y.values.contiguous(), Code::bad_argument,
        "{}: the copy {} must be e4m3 or e5m2 [{}, {}], contiguous; it is {} [{}, {}]", op, which, lines, k, name_of(y.values.dtype),
        y.values.shape[0], y.values.shape[1]);
  check(y.scale.dtype == DType::f32 && y.scale.shape == scale_shape(y.kind, lines, k) && y.scale.contiguous(), Code::bad_argument,
        "{}: the copy {} needs {} fp32 scales ({}); it has {} of {}", op, which, scale_shape(y.kind, lines, k).count(), name_of(y.kind),
        y.scale.count(), name_of(y.scale.dtype));
}

Scaled make(Name name, ScaledFormat f, std::int64_t lines, std::int64_t k, Context& ctx) {
  const Tensor values = ctx.arena.make(name, f.dtype, {lines, k});
  return {values, ctx.arena.make({"scales", name.layer}, DType::f32, scale_shape(f.scale, lines, k)), f.scale};
}

std::size_t bytes_of(ScaledFormat f, std::int64_t lines, std::int64_t k) {
  return Arena::rounded(std::size_t(lines * k) * size_of(f.dtype)) +
         Arena::rounded(std::size_t(scale_shape(f.scale, lines, k).count()) * 4);
}

Support supports(Of of, std::int64_t rows, std::int64_t columns, DType type, const Device& device) {
  const bool cpu = device.kind != DeviceKind::cuda;
  if (of == Of::stored || (of == Of::rmsnorm && cpu)) return {};
  if (cpu) return Support::no("SwiGLU is quantised in a pass of its own on a CPU");
  const std::int64_t by = of == Of::swiglu_gradient ? 2 * scale_block : 16;  // gate's half of a gradient ends with a block
  if (type != DType::bf16 || rows % 16 || columns % by)
    return Support::no(fmt::format("bf16 of rows that 16 and columns that {} divides is quantised as it is made; {} [{}, {}] is not", by,
                                   name_of(type), rows, columns));
  return {};
}

void quantise(const Request& r, Context& ctx, Name name) {
  check(r.x.shape.rank == 2 && r.x.contiguous() && (r.x.dtype == DType::f32 || r.x.dtype == DType::bf16 || r.x.dtype == DType::f16),
        Code::bad_argument, "quantise: x must be fp32, bf16 or fp16 [rows, columns], contiguous; it is {} of rank {}", name_of(r.x.dtype),
        r.x.shape.rank);
  const std::int64_t rows = r.rows(), columns = r.columns(), strips = ceil_div(rows, scale_block);
  check(r.as_is || r.transposed, Code::bad_argument, "quantise: neither a copy as it is nor a transposed one was asked for");
  if (r.as_is) check_copy(r.as_is, rows, columns, "quantise", "as it is");
  if (r.transposed) check_copy(r.transposed, columns, rows, "quantise", "that is transposed");
  check(!r.counts || (r.counts.dtype == DType::i64 && r.counts.count() == count_size && r.counts.contiguous()), Code::bad_argument,
        "quantise: counts must be {} of int64; they are {} of {}", int(count_size), r.counts.count(), name_of(r.counts.dtype));
  const Support support = supports(r.of, rows, columns, r.x.dtype, ctx.device);
  check(support.ok, Code::unsupported, "quantise: {}", support.why);
  const Shape half{rows, columns / 2};
  check(r.of != Of::swiglu_gradient || (r.dact.dtype == r.x.dtype && r.dact.shape == half && r.dact.contiguous()), Code::bad_argument,
        "quantise: dact must be {} [{}, {}], contiguous", name_of(r.x.dtype), rows, columns / 2);
  check(r.of != Of::rmsnorm || (r.weight.dtype == DType::f32 && r.weight.count() == columns && r.weight.contiguous() &&
                                r.rstd.dtype == DType::f32 && r.rstd.count() == rows && r.rstd.contiguous()),
        Code::bad_argument, "quantise: weight must be fp32 [{}] and rstd fp32 [{}], contiguous", columns, rows);
  const double numbers = double(rows) * double(columns), of_each = r.of == Of::stored ? 3 : r.of == Of::rmsnorm ? 5 : 9;
  std::size_t bytes = r.x.bytes();
  for (const Tensor* t : {&r.dact, &r.weight, &r.rstd}) bytes += *t ? t->bytes() : 0;
  for (const Scaled* y : {&r.as_is, &r.transposed}) bytes += *y ? y->bytes() : 0;
  Cost cost{of_each * numbers, double(bytes)};
  cost.on_card.launches =
      2;  // a block reads a tile, waits for its largest number and writes it: as long as two kernels where tiles are few
  if (maxima_on_card(r).count() > 0 && !in_lines(r))
    cost.on_card = {.launches = 3, .again = double(r.x.bytes() + (r.dact ? r.dact.bytes() : 0))};
  const auto op = ctx.note(name, {DType::f32}, cost, Work::quantise);
  auto scope = ctx.arena.scope();
  if (ctx.on_gpu()) {
    const std::int64_t count = maxima_on_card(r).count();
    const Tensor maxima = count == 0 ? Tensor() : ctx.arena.make("quantise.maxima", DType::u32, {count});
    if (!ctx.dry()) beside::call<quantise_cuda>(r, maxima, ctx);
    return;
  }
  Maxima maxima;
  if (has(r.as_is, ScaleKind::one) || has(r.transposed, ScaleKind::one))
    maxima.strips = ctx.arena.make("quantise.maxima", DType::f32, {strips});
  if (has(r.transposed, ScaleKind::row)) maxima.columns = ctx.arena.make("quantise.maxima", DType::f32, {strips, columns});
  if (!ctx.dry()) quantise_cpu(r, maxima, ctx);
}

}  // namespace headroom::quantise
