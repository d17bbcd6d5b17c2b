#include "ops/stripes/stripes.h"

#include "gpu/beside.h"
#include "ops/stripes/impl.h"

namespace headroom::stripes {

namespace {

void check_rows(const char* what, const Tensor& t, std::int64_t rows, std::int64_t width, bool gaps) {
  check(t.shape.rank == 2 && t.shape[0] == rows && t.shape[1] == width && t.stride[1] == 1 && (gaps || t.contiguous() || t.count() == 0),
        Code::bad_argument, "stripes: {} must be [{}, {}]{}, it is [{}, {}]", what, rows, width, gaps ? "" : ", contiguous", t.shape[0],
        t.shape[1]);
}

}  // namespace

void pack(const Tensor& from, const Tensor& to, Context& ctx) {
  check_rows("from", from, to.shape[0], to.shape[1], true), check_rows("to", to, from.shape[0], from.shape[1], true);
  check(from.dtype == to.dtype, Code::bad_argument, "stripes: {} is not packed into {}", name_of(from.dtype), name_of(to.dtype));
  const auto op = ctx.note("pack", {from.dtype}, {0, double(from.bytes() + to.bytes())});
  if (ctx.dry() || from.count() == 0) return;
  ctx.on_gpu() ? beside::call<pack_cuda>(from, to, ctx) : pack_cpu(from, to, ctx);
}

void in_order(const Stripes& s, const Tensor& by_rank, const Tensor& to, Context& ctx) {
  check_rows("by_rank", by_rank, s.batch * s.len(), to.shape[1], false), check_rows("to", to, s.batch * s.len(), by_rank.shape[1], false);
  check(by_rank.dtype == to.dtype && (size_of(to.dtype) == 2 || size_of(to.dtype) == 4), Code::bad_argument,
        "stripes: {} is not put in order as {}", name_of(by_rank.dtype), name_of(to.dtype));
  const auto op = ctx.note("in order", {to.dtype}, {0, double(2 * to.bytes())});
  if (ctx.dry() || to.count() == 0) return;
  ctx.on_gpu() ? beside::call<in_order_cuda>(s, by_rank, to, ctx) : in_order_cpu(s, by_rank, to, ctx);
}

void add_by_rank(const Stripes& s, const Tensor& first, const Tensor& by_rank, Gradient how, Context& ctx) {
  const auto tokens = first.shape[0] / s.batch;
  check(tokens * s.batch == first.shape[0] && tokens <= s.len(), Code::bad_argument, "stripes: {} rows are not the first of {} sequences",
        first.shape[0], s.batch);
  check_rows("first", first, first.shape[0], by_rank.shape[1], false);
  check_rows("by_rank", by_rank, s.batch * s.len(), first.shape[1], false);
  check(by_rank.dtype == DType::f32 && first.dtype != DType::f64, Code::bad_argument, "stripes: sums are fp32, not {}",
        name_of(by_rank.dtype));
  const bool adds = how == Gradient::accumulate;
  const auto op =
      ctx.note("add by rank", {DType::f32},
               {adds ? double(first.count()) : 0, double(first.bytes()) + (adds ? 8.0 * double(first.count()) : double(by_rank.bytes()))});
  if (ctx.dry() || by_rank.count() == 0) return;
  ctx.on_gpu() ? beside::call<add_by_rank_cuda>(s, first, by_rank, how, ctx) : add_by_rank_cpu(s, first, by_rank, how, ctx);
}

void add_up(const Tensor& parts, int count, const Tensor& to, Context& ctx) {
  check_rows("parts", parts, count * to.shape[0], to.shape[1], false), check_rows("to", to, to.shape[0], parts.shape[1], true);
  check(parts.dtype == DType::f32 && count >= 1, Code::bad_argument, "stripes: {} parts of {} are not added up; fp32 is", count,
        name_of(parts.dtype));
  const auto op = ctx.note("add up", {DType::f32}, {double(parts.count() - to.count()), double(parts.bytes() + to.bytes())});
  if (ctx.dry() || to.count() == 0) return;
  ctx.on_gpu() ? beside::call<add_up_cuda>(parts, count, to, ctx) : add_up_cpu(parts, count, to, ctx);
}

}  // namespace headroom::stripes
