#include "engine/counted/passes.h"

#include "ops/bias/bias.h"
#include "ops/layernorm/layernorm.h"
#include "ops/product_update/product_update.h"
#include "ops/rmsnorm/rmsnorm.h"

namespace headroom::engine::counted {

void Passes::make_items(const std::vector<Item>& items, Keep keep, bool kept, int layer) {
  for (const Item& i : items)
    if ((keep <= i.last) == kept) (void)make(i.name, layer, i.type, i.shape);
}

void Passes::elementwise(const char* name, int layer, double elements_moved, double flops) {
  const auto op = ctx.note({name, layer}, precision, {flops, elements_moved * size()});
}

void Passes::product(const char* name, int layer, std::int64_t n, std::int64_t out, std::int64_t in, std::int64_t weights, float beta) {
  matmul::multiply({view(type(), {n, in}), transposed(view(type(), {out, in})), view(type(), {n, out}), 1, beta, precision.math}, ctx,
                   {name, layer});
  const double whole = double(out * in) * size(), held = weights_as.quantises(name) ? weights_as.bytes_of(out * in, in, type()) : whole;
  if (ctx.walk) ctx.walk->steps.back().cost.bytes -= whole - held;
  other_weights(layer, weights, held);
}

void Passes::product_dx(const char* name, int layer, std::int64_t n, std::int64_t out, std::int64_t in, std::int64_t weights, float beta) {
  matmul::multiply({view(type(), {n, out}), view(type(), {out, in}), view(type(), {n, in}), 1, beta, precision.math}, ctx, {name, layer},
                   Making::gradients);
  other_weights(layer, weights, double(out * in) * size());
}

void Passes::product_dw(const char* name, int layer, std::int64_t n, std::int64_t out, std::int64_t in, DType dw, std::int64_t weights) {
  matmul::multiply({transposed(view(type(), {n, out})), view(type(), {n, in}), view(dw, {out, in}), 1, 0, precision.math}, ctx,
                   {name, layer}, Making::gradients);
  other_weights(layer, weights, double(out * in) * double(size_of(dw)));
}

void Passes::other_weights(int layer, std::int64_t weights, double bytes_of_one) {
  if (weights > 1) const auto op = ctx.note({"experts.weights", layer}, precision, {0, double(weights - 1) * bytes_of_one});
}

void Passes::norm(const Tensor& y, std::int64_t width, const Tensor& residual) {
  rmsnorm::forward({view(type(), {rows(), width}), view(DType::f32, {width}), y, view(DType::f32, {rows()}), 1e-6f, residual}, ctx);
}

void Passes::norm_backward(std::int64_t width, Gradient into_dx) {
  rmsnorm::backward({view(type(), {rows(), width}), view(DType::f32, {width}), view(DType::f32, {rows()}), view(type(), {rows(), width}),
                     view(type(), {rows(), width}), view(DType::f32, {width}), into_dx, Gradient::overwrite},
                    ctx);
}

void Passes::stream_norm() {
  const Tensor x = view(type(), {rows(), d.width}), w = view(DType::f32, {d.width}), stats = view(DType::f32, {rows()});
  if (!d.layer_norm) return norm(x, d.width);
  layernorm::forward({x, w, w, x, stats, stats, 1e-5f}, ctx);
}

void Passes::stream_norm_backward(Gradient into_dx) {
  const Tensor x = view(type(), {rows(), d.width}), w = view(DType::f32, {d.width}), stats = view(DType::f32, {rows()});
  if (!d.layer_norm) return norm_backward(d.width, into_dx);
  layernorm::backward({x, w, stats, stats, x, x, w, w, into_dx, Gradient::overwrite}, ctx);
}

void Passes::add_bias(std::int64_t width) { bias::add(view(type(), {rows(), width}), view(DType::f32, {width}), ctx); }

void Passes::bias_gradient(std::int64_t width) {
  bias::backward(view(type(), {rows(), width}), view(DType::f32, {width}), Gradient::overwrite, ctx);
}

void WeightGradients::add(const char* name, int layer, std::int64_t n, std::int64_t out, std::int64_t in, std::int64_t weights) {
  if (!none()) return p.product_dw(name, layer, n, out, in, type(), weights);
  check(weights == 1, Code::unsupported, "step: gradients none are not known of experts' weights; take --gradients half");
  waiting.emplace_back(out, in);
}

void WeightGradients::finish(std::int64_t n) {
  for (std::size_t at = 0; at < waiting.size(); at += 2) {
    std::vector<product_update::Item> items;
    for (std::size_t i = at; i < std::min(at + 2, waiting.size()); ++i) {
      const auto [out, in] = waiting[i];
      Updated u{.grad = {}, .master = {}, .copy = view(DType::bf16, {out, in}), .rest = view(DType::u16, {out, in}), .state = {}};
      const Optimizer optimizer(recipe.holding.moments);
      ParamSpec matrix{};
      matrix.multiplied = true;
      for (const StateTensor& s : optimizer.states(matrix)) u.state.push_back(view(s.type, s.shape_for({out, in})));
      items.push_back({view(p.type(), {n, out}), view(p.type(), {n, in}), optimizer.update(u)});
    }
    product_update::advance(items, numbers, p.ctx);
  }
  waiting.clear();
}

}  // namespace headroom::engine::counted
