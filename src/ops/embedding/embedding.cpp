#include "ops/embedding/embedding.h"

#include "gpu/beside.h"
#include "ops/embedding/impl.h"

namespace headroom::embedding {

namespace {
void check_rows(const Tensor& table, const Tensor& tokens, const Tensor& x) {
  check(table.shape.rank == 2 && x.shape.rank == 2 && table.shape[1] == x.shape[1] && table.contiguous() && x.contiguous(),
        Code::bad_argument, "embedding: table [{}, {}] and rows [{}, {}] must be contiguous and of one width", table.shape[0],
        table.shape[1], x.shape[0], x.shape[1]);
  check(tokens.dtype == DType::i32 && tokens.count() == x.shape[0], Code::bad_argument,
        "embedding: tokens must be int32 [{}], they are {} [{}]", x.shape[0], name_of(tokens.dtype), tokens.count());
}
}  // namespace

void forward(const Tensor& table, const Tensor& tokens, const Tensor& x, Context& ctx, float scale) {
  check_rows(table, tokens, x);
  const auto op = ctx.note("embedding.forward", {DType::f32},
                           {0, double(x.count()) * double(size_of(table.dtype)) + double(x.bytes() + tokens.bytes())});
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<forward_cuda>(table, tokens, x, scale, ctx) : forward_cpu(table, tokens, x, scale, ctx);
}

void add(const Tensor& table, const Tensor& tokens, const Tensor& x, Context& ctx) {
  check_rows(table, tokens, x);
  const auto op = ctx.note("embedding.add", {DType::f32},
                           {double(x.count()), double(x.count()) * double(size_of(table.dtype)) + double(2 * x.bytes() + tokens.bytes())});
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<add_cuda>(table, tokens, x, ctx) : add_cpu(table, tokens, x, ctx);
}

void backward(const Tensor& tokens, const Tensor& dx, const Tensor& dtable, Gradient into_dtable, Context& ctx, float scale) {
  check_rows(dtable, tokens, dx);
  check(dtable.dtype == DType::f32, Code::bad_argument, "embedding: the table's gradient must be fp32, it is {}", name_of(dtable.dtype));
  auto scope = ctx.arena.scope();
  Sorted sorted;
  if (ctx.on_gpu())
    sorted = {ctx.arena.make("embedding.starts", DType::i32, {dtable.shape[0] + 1}),
              ctx.arena.make("embedding.rows", DType::i32, {dx.shape[0]}),
              ctx.arena.make("embedding.unordered", DType::i32, {dx.shape[0]})};
  const bool clear = into_dtable == Gradient::overwrite;
  const double rows = double(dx.shape[0]), words = double(dtable.shape[0]);  // they are sorted, then every word looks for its rows
  const auto op = ctx.note("embedding.backward", {DType::f32},
                           {double(dx.count()),
                            double(dx.bytes()) + (clear ? double(dtable.bytes()) : 8 * double(dx.count())),
                            0,
                            {},
                            {.launches = 3, .units_us = 5 + 0.9e-3 * rows + 0.85e-3 * words}},
                           Work::other, Making::gradients);
  if (ctx.dry()) return;
  ctx.on_gpu() ? beside::call<backward_cuda>(tokens, dx, dtable, into_dtable, scale, sorted, ctx)
               : backward_cpu(tokens, dx, dtable, into_dtable, scale, ctx);
}

}  // namespace headroom::embedding
