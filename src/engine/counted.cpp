#include "engine/counted.h"

#include <algorithm>

#include "ops/activation/activation.h"
#include "ops/bias/bias.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/embedding/embedding.h"
#include "ops/head_norm/head_norm.h"
#include "ops/layernorm/layernorm.h"
#include "ops/product_update/product_update.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope/rope.h"
#include "ops/swiglu/swiglu.h"

namespace headroom::engine {

namespace {

using matmul::transposed;

const attention::Variant& serving_variant(attention::Problem p, std::string_view wanted, const Context& ctx) {
  try {
    return attention::choose(p, ctx.device, wanted);
  } catch (const Error&) {
    if (ctx.device.kind == DeviceKind::cpu) throw;
    p.precision.math = Math::exact;
    return attention::choose(p, Device{}, wanted);
  }
}

Tensor view(DType type, Shape shape) { return Tensor(nullptr, type, shape); }

struct Item {  // of what a half of a layer makes: kept for backward at this level and those that remember more
  const char* name;
  DType type;
  Shape shape;
  Keep last;
};

}  // namespace

// One decoder's passes over `rows` = batch · len tokens.
struct Passes {
  const Decoder& d;
  std::int64_t batch, len;  // of queries
  std::int64_t len_k;       // of keys: len, or the cache
  Precision precision;
  std::string_view wanted;
  Context& ctx;

  std::int64_t rows() const { return batch * len; }
  DType type() const { return precision.dtype; }
  double size() const { return double(size_of(type())); }

  Tensor make(const char* name, int layer, DType t, Shape s) { return ctx.arena.make({name, layer}, t, s); }
  void elementwise(const char* name, int layer, double elements_moved, double flops = 0) {
    const auto op = ctx.note({name, layer}, precision, {flops, elements_moved * size()});
  }

  // Y = X · Wᵀ, its dX, its dW. weights: how many of that shape are read (an expert's product touches several).
  void product(const char* name, int layer, std::int64_t n, std::int64_t out, std::int64_t in, std::int64_t weights = 1, float beta = 0) {
    matmul::multiply({view(type(), {n, in}), transposed(view(type(), {out, in})), view(type(), {n, out}), 1, beta, precision.math}, ctx,
                     {name, layer});
    other_weights(layer, weights, out * in, size());
  }
  void product_dx(const char* name, int layer, std::int64_t n, std::int64_t out, std::int64_t in, std::int64_t weights = 1,
                  float beta = 0) {
    matmul::multiply({view(type(), {n, out}), view(type(), {out, in}), view(type(), {n, in}), 1, beta, precision.math}, ctx, {name, layer});
    other_weights(layer, weights, out * in, size());
  }
  void product_dw(const char* name, int layer, std::int64_t n, std::int64_t out, std::int64_t in, DType dw, std::int64_t weights = 1) {
    matmul::multiply({transposed(view(type(), {n, out})), view(type(), {n, in}), view(dw, {out, in}), 1, 0, precision.math}, ctx,
                     {name, layer});
    other_weights(layer, weights, out * in, double(size_of(dw)));
  }
  void other_weights(int layer, std::int64_t weights, std::int64_t elements, double bytes_of_one) {
    if (weights > 1)
      const auto op = ctx.note({"experts.weights", layer}, precision, {0, double(weights - 1) * double(elements) * bytes_of_one});
  }

  // Of a latent or of all heads: RMSNorm. Of the stream: what the model has; after a half it adds the stream.
  void norm(const Tensor& y, std::int64_t width, const Tensor& residual = {}) {
    rmsnorm::forward({view(type(), {rows(), width}), view(DType::f32, {width}), y, view(DType::f32, {rows()}), 1e-6f, residual}, ctx);
  }
  void norm_backward(std::int64_t width, Gradient into_dx = Gradient::accumulate) {
    rmsnorm::backward({view(type(), {rows(), width}), view(DType::f32, {width}), view(DType::f32, {rows()}), view(type(), {rows(), width}),
                       view(type(), {rows(), width}), view(DType::f32, {width}), into_dx, Gradient::overwrite},
                      ctx);
  }
  void stream_norm() {
    const Tensor x = view(type(), {rows(), d.width}), w = view(DType::f32, {d.width}), stats = view(DType::f32, {rows()});
    if (!d.layer_norm) return norm(x, d.width);
    layernorm::forward({x, w, w, x, stats, stats, 1e-5f}, ctx);
  }
  void stream_norm_backward(Gradient into_dx = Gradient::accumulate) {
    const Tensor x = view(type(), {rows(), d.width}), w = view(DType::f32, {d.width}), stats = view(DType::f32, {rows()});
    if (!d.layer_norm) return norm_backward(d.width, into_dx);
    layernorm::backward({x, w, stats, stats, x, x, w, w, into_dx, Gradient::overwrite}, ctx);
  }
  void norm_after() { norm(view(type(), {rows(), d.width}), d.width, view(type(), {rows(), d.width})); }

  std::vector<Item> attention_items(const SelfAttention& a) const {
    const DType t = type();
    const std::int64_t n = rows();
    const auto p = problem_of(a, batch, len, len_k, precision);
    std::vector<Item> items;
    if (d.norms_before) items.push_back({"norm1.rstd", DType::f32, {n}, Keep::no_attention_inputs});
    if (d.norms_before && d.layer_norm) items.push_back({"norm1.mean", DType::f32, {n}, Keep::no_attention_inputs});
    items.push_back({"attention.o", t, {n, a.out_width()}, Keep::no_attention_inputs});
    items.push_back({"attention.lse", DType::f32, p.lse_shape(), Keep::no_attention_inputs});
    if (a.latent()) {
      if (a.q_rank > 0) {
        items.push_back({"attention.q_latent", t, {n, a.q_rank}, Keep::no_cheap});
        items.push_back({"attention.q_latent_norm", t, {n, a.q_rank}, Keep::no_product});
      }
      items.push_back({"attention.kv_latent", t, {n, a.kv_rank + a.rope_dim}, Keep::no_cheap});
      items.push_back({"attention.kv_latent_norm", t, {n, a.kv_rank}, Keep::no_product});
      items.push_back({"attention.q", t, {n, a.q_width()}, Keep::no_cheap});
      items.push_back({"attention.k", t, {n, a.q_width()}, Keep::no_cheap});
      items.push_back({"attention.v", t, {n, a.out_width()}, Keep::no_cheap});
    } else {
      items.push_back({"attention.qkv", t, {n, a.q_width() + a.k_width() + a.v_width()}, Keep::no_cheap});
    }
    if (serving_variant(p, wanted, ctx).family == "plain") items.push_back({"p", t, {batch, a.heads, len, len_k}, Keep::no_cheap});
    if (d.norms_before) items.push_back({"norm1.y", t, {n, d.width}, Keep::no_product});
    if (d.norms_after) {
      items.push_back({"attention.out", t, {n, d.width}, Keep::no_cheap});
      items.push_back({"norm1_after.rstd", DType::f32, {n}, Keep::no_attention_inputs});
    }
    return items;
  }
  std::vector<Item> ffn_items(const FeedForward& f) const {
    const DType t = type();
    const std::int64_t n = rows(), routed = n * f.experts_of_token;
    std::vector<Item> items;
    if (d.norms_before) items.push_back({"norm2.rstd", DType::f32, {n}, Keep::no_attention_inputs});
    if (d.norms_before && d.layer_norm) items.push_back({"norm2.mean", DType::f32, {n}, Keep::no_attention_inputs});
    if (f.experts > 0) {
      items.push_back({"router.logits", DType::f32, {n, f.experts}, Keep::no_attention_inputs});
      items.push_back({"router.weights", DType::f32, {n, f.experts_of_token}, Keep::no_attention_inputs});
      items.push_back({"router.experts", DType::i32, {n, f.experts_of_token}, Keep::no_attention_inputs});
      items.push_back({"experts.x", t, {routed, d.width}, Keep::no_product});
      items.push_back({"experts.gate_up", t, {routed, f.in_width(f.width)}, Keep::no_attention_inputs});
      items.push_back({"experts.act", t, {routed, f.width}, Keep::everything});
      items.push_back({"experts.y", t, {routed, d.width}, Keep::no_cheap});
      if (f.shared_width > 0) {
        items.push_back({"shared.gate_up", t, {n, f.in_width(f.shared_width)}, Keep::no_attention_inputs});
        items.push_back({"shared.act", t, {n, f.shared_width}, Keep::everything});
      }
      if (f.shared_gate) items.push_back({"shared.y", t, {n, d.width}, Keep::no_cheap});
    } else {
      items.push_back({"ffn.gate_up", t, {n, f.in_width(f.width)}, Keep::no_attention_inputs});
      items.push_back({"ffn.act", t, {n, f.width}, Keep::everything});
    }
    if (d.norms_before) items.push_back({"norm2.y", t, {n, d.width}, Keep::no_product});
    if (d.norms_after) {
      items.push_back({"ffn.out", t, {n, d.width}, Keep::no_cheap});
      items.push_back({"norm2_after.rstd", DType::f32, {n}, Keep::no_attention_inputs});
    }
    return items;
  }
  void make_items(const std::vector<Item>& items, Keep keep, bool kept, int layer) {
    for (const Item& i : items)
      if ((keep <= i.last) == kept) (void)make(i.name, layer, i.type, i.shape);
  }

  // Experts' weights that the routed rows touch, at most all.
  std::int64_t touched(const FeedForward& f) const { return std::min(f.experts, rows() * f.experts_of_token); }

  void attention_core(const SelfAttention& a, bool back) {
    attention::Problem p = problem_of(a, batch, len, len_k, precision);
    const attention::Variant& v = serving_variant(p, wanted, ctx);
    if (!v.supports(p, ctx.device, attention::Pass::forward) && ctx.device.kind == DeviceKind::cuda) p.precision.math = Math::exact;
    const Tensor q = view(type(), p.q_shape()), k = view(type(), p.k_shape()), v_ = view(type(), p.v_shape()),
                 o = view(type(), p.o_shape()), lse = view(DType::f32, p.lse_shape());
    attention::Saved saved;
    if (v.family == "plain") saved.p = view(type(), {p.batch, p.heads, p.len_q, p.len_k});
    if (back) {
      attention::Backward b;
      b.q = b.dq = q, b.k = b.dk = k, b.v = b.dv = v_, b.o = b.d_o = o, b.lse = lse, b.saved = saved;
      attention::backward(v, p, b, ctx);
    } else {
      attention::Forward f;
      f.q = q, f.k = k, f.v = v_, f.o = o, f.lse = lse, f.saved = saved;
      attention::forward(v, p, f, ctx);
    }
  }
  void head_norms(const SelfAttention& a, bool back) {
    if (a.norm == HeadNorm::none) return;
    if (!back) (void)ctx.arena.make("attention.qk", type(), {rows(), a.q_width() + a.k_width()});
    if (a.norm == HeadNorm::whole) {
      if (!back)
        for (const char* name : {"q_norm.rstd", "k_norm.rstd"}) (void)ctx.arena.make(name, DType::f32, {rows()});
      if (back) rotate(a, rope::Turn::back);
      for (const std::int64_t width : {a.q_width(), a.k_width()})
        back ? norm_backward(width, Gradient::overwrite) : norm(view(type(), {rows(), width}), width);
      if (!back) rotate(a, rope::Turn::forward);
      return;
    }
    for (const std::int64_t heads : {a.heads, a.kv_heads}) {
      const Tensor x = view(type(), {batch, len, heads, a.head_dim}), weight = view(DType::f32, {a.head_dim}),
                   table = view(DType::f32, {len, a.head_dim});
      if (a.head_dim % 2 != 0 || a.head_dim > 256)
        elementwise("attention.norm", -1, (back ? 4.0 : 2.0) * double(x.count()), 8.0 * double(x.count()));
      else if (back)
        head_norm::backward({x, weight, table, x, weight, Gradient::overwrite, 1e-6f}, ctx);
      else
        head_norm::forward({x, weight, table, x, 1e-6f}, ctx);
    }
  }
  void turn(const SelfAttention& a, rope::Turn way) {
    if (a.norm == HeadNorm::none) rotate(a, way);
  }
  void rotate(const SelfAttention& a, rope::Turn way) {
    if (d.positions > 0) return;
    const std::int64_t heads = a.latent() ? a.heads + 1 : a.heads + a.kv_heads, dim = a.turned_dim();
    if (dim >= 2 && dim % 2 == 0 && dim <= 256)
      rope::rotate(view(type(), {batch, len, heads, dim}), view(DType::f32, {len, dim}), way, ctx);
  }

  // have: what holds values already, by the level that is kept; Keep::input: nothing. out: the half's result is wanted.
  void attention_forward(const SelfAttention& a, int layer, Keep have, bool nothing, bool out) {
    const auto here = ctx.inside({"attention", layer});
    const std::int64_t n = rows();
    const auto lacks = [&](Keep last) { return nothing || have > last; };
    if (d.norms_before && lacks(Keep::no_product)) stream_norm();
    if (lacks(Keep::no_cheap)) {
      if (a.latent()) {
        const std::int64_t nope = a.head_dim - a.rope_dim;
        if (a.q_rank > 0) {
          product("attention.q_down", layer, n, a.q_rank, d.width);
          norm(view(type(), {n, a.q_rank}), a.q_rank);
          product("attention.q_up", layer, n, a.q_width(), a.q_rank);
        } else {
          product("attention.q", layer, n, a.q_width(), d.width);
        }
        product("attention.kv_down", layer, n, a.kv_rank + a.rope_dim, d.width);
        norm(view(type(), {n, a.kv_rank}), a.kv_rank);
        product("attention.kv_up", layer, n, a.heads * (nope + a.value_dim), a.kv_rank);
        elementwise("attention.k", layer, 2.0 * double(n) * double(a.q_width()));  // both parts of every head's k, together
      } else {
        const std::int64_t width = a.q_width() + a.k_width() + a.v_width();
        product("attention.qkv", layer, n, width, d.width);
        if (a.qkv_bias) bias::add(view(type(), {n, width}), view(DType::f32, {width}), ctx);
      }
      turn(a, rope::Turn::forward);
    }
    if (lacks(Keep::no_attention_inputs) ||
        (lacks(Keep::no_cheap) && serving_variant(problem_of(a, batch, len, len_k, precision), wanted, ctx).family == "plain")) {
      auto scope = ctx.arena.scope();
      head_norms(a, false);
      attention_core(a, false);
    }
    if (d.norms_after ? lacks(Keep::no_cheap) : out) {
      product("attention.out", layer, n, d.width, a.out_width(), 1, d.norms_after ? 0.0f : 1.0f);
      if (a.out_bias) bias::add(view(type(), {n, d.width}), view(DType::f32, {d.width}), ctx);
    }
    if (d.norms_after && out) norm_after();
  }

  void activate(const FeedForward& f, std::int64_t n, std::int64_t width) {
    const Tensor in = view(type(), {n, f.in_width(width)}), act = view(type(), {n, width});
    if (f.swiglu()) return swiglu::forward({in, act}, ctx);
    activation::forward({in, act, f.function}, ctx);
  }
  void activate_backward(const FeedForward& f, std::int64_t n, std::int64_t width, bool act_kept) {
    const Tensor in = view(type(), {n, f.in_width(width)}), act = view(type(), {n, width});
    if (f.swiglu()) return swiglu::backward({in, act, in, act_kept ? Tensor() : act}, ctx);
    activation::backward({in, act, in, act_kept ? Tensor() : act, f.function}, ctx);
  }

  void ffn_forward(const FeedForward& f, int layer, Keep have, bool nothing, bool out) {
    const auto here = ctx.inside({"feed-forward", layer});
    const std::int64_t n = rows(), routed = n * f.experts_of_token;
    const auto lacks = [&](Keep last) { return nothing || have > last; };
    if (d.norms_before && lacks(Keep::no_product)) stream_norm();
    const bool again = lacks(Keep::no_attention_inputs);
    if (f.experts == 0) {
      if (again) {
        product("ffn.gate_up", layer, n, f.in_width(f.width), d.width);
        if (f.bias) bias::add(view(type(), {n, f.in_width(f.width)}), view(DType::f32, {f.in_width(f.width)}), ctx);
      }
      if (d.norms_after ? lacks(Keep::no_cheap) : out) {
        activate(f, n, f.width);
        product("ffn.down", layer, n, d.width, f.width, 1, d.norms_after ? 0.0f : 1.0f);
        if (f.bias) bias::add(view(type(), {n, d.width}), view(DType::f32, {d.width}), ctx);
      }
    } else {
      if (again) {
        product("router", layer, n, f.experts, d.width);
        const auto op = ctx.note({"router.choose", layer}, precision, {8.0 * double(n * f.experts), 4.0 * double(n * f.experts)});
      }
      if (lacks(Keep::no_product)) elementwise("experts.x", layer, 2.0 * double(routed) * double(d.width));
      if (again) {
        product("experts.gate_up", layer, routed, f.in_width(f.width), d.width, touched(f));
        if (f.shared_width > 0) product("shared.gate_up", layer, n, f.in_width(f.shared_width), d.width);
      }
      if (!out && !lacks(Keep::no_cheap)) return;  // y of the experts is kept
      activate(f, routed, f.width);
      product("experts.down", layer, routed, d.width, f.width, touched(f));
      if (f.shared_width > 0) activate(f, n, f.shared_width), product("shared.down", layer, n, d.width, f.shared_width);
      elementwise("experts.combine", layer, double(routed + n) * double(d.width), 2.0 * double(routed) * double(d.width));
    }
    if (d.norms_after && out) norm_after();
    if (d.norms_after && !out && again) {
      auto scope = ctx.arena.scope();
      norm(make("ffn.normed", layer, type(), {n, d.width}), d.width);
    }
  }

  // What stands while weights' gradients are made and updated: as Products do it, for any number of products.
  struct WeightGradients {
    Passes& p;
    const Recipe& recipe;
    Tensor numbers;
    std::vector<std::pair<std::int64_t, std::int64_t>> waiting{};  // sides of the weights

    bool none() const { return recipe.purpose == Purpose::training && recipe.holding.gradients == Gradients::none; }
    DType type() const { return recipe.holding.gradients == Gradients::whole ? DType::f32 : p.type(); }
    void add(const char* name, int layer, std::int64_t n, std::int64_t out, std::int64_t in, std::int64_t weights = 1) {
      if (!none()) return p.product_dw(name, layer, n, out, in, type(), weights);
      check(weights == 1, Code::unsupported, "step: gradients none are not known of experts' weights; take --gradients half");
      waiting.emplace_back(out, in);
    }
    void finish(std::int64_t n) {
      for (std::size_t at = 0; at < waiting.size(); at += 2) {
        std::vector<product_update::Item> items;
        for (std::size_t i = at; i < std::min(at + 2, waiting.size()); ++i) {
          const auto [out, in] = waiting[i];
          adamw::Update u;
          u.m = u.v = view(DType::f32, {out, in}), u.copy = view(DType::bf16, {out, in}), u.rest = view(DType::u16, {out, in});
          items.push_back({view(p.type(), {n, out}), view(p.type(), {n, in}), u});
        }
        product_update::advance(items, numbers, p.ctx);
      }
      waiting.clear();
    }
  };

  void attention_backward(const SelfAttention& a, int layer, WeightGradients& g) {
    const auto here = ctx.inside({"attention", layer});
    auto scope = ctx.arena.scope();
    const std::int64_t n = rows();
    if (d.norms_after) {
      (void)make("attention.dout", layer, type(), {n, d.width});
      norm_backward(d.width, Gradient::overwrite);
    }
    if (a.out_bias) bias::backward(view(type(), {n, d.width}), view(DType::f32, {d.width}), Gradient::overwrite, ctx);
    g.add("attention.out.dw", layer, n, d.width, a.out_width());
    const std::int64_t width = a.latent() ? 2 * a.q_width() + a.out_width() : a.q_width() + a.k_width() + a.v_width();
    (void)make("attention.dqkv", layer, type(), {n, width});
    {
      auto inner = ctx.arena.scope();
      (void)make("attention.do", layer, type(), {n, a.out_width()});
      product_dx("attention.out.dx", layer, n, d.width, a.out_width());
      head_norms(a, false);
      attention_core(a, true);
      head_norms(a, true);
      turn(a, rope::Turn::back);
    }
    if (a.latent()) {
      const std::int64_t nope = a.head_dim - a.rope_dim, up = a.heads * (nope + a.value_dim);
      (void)make("attention.dkv_latent", layer, type(), {n, a.kv_rank + a.rope_dim});
      g.add("attention.kv_up.dw", layer, n, up, a.kv_rank);
      product_dx("attention.kv_up.dx", layer, n, up, a.kv_rank);
      norm_backward(a.kv_rank);
      g.add("attention.kv_down.dw", layer, n, a.kv_rank + a.rope_dim, d.width);
      if (a.q_rank > 0) {
        (void)make("attention.dq_latent", layer, type(), {n, a.q_rank});
        g.add("attention.q_up.dw", layer, n, a.q_width(), a.q_rank);
        product_dx("attention.q_up.dx", layer, n, a.q_width(), a.q_rank);
        norm_backward(a.q_rank);
        g.add("attention.q_down.dw", layer, n, a.q_rank, d.width);
      } else {
        g.add("attention.q.dw", layer, n, a.q_width(), d.width);
      }
    } else {
      if (a.qkv_bias) bias::backward(view(type(), {n, width}), view(DType::f32, {width}), Gradient::overwrite, ctx);
      g.add("attention.qkv.dw", layer, n, width, d.width);
    }
    // Norm(x) has been used for the last time, unless its product waits: its gradient takes its place. Without a norm it is the stream's.
    if (g.none() && d.norms_before) (void)make("norm1.dy", layer, type(), {n, d.width});
    if (a.latent()) {
      product_dx("attention.kv_down.dx", layer, n, a.kv_rank + a.rope_dim, d.width);
      product_dx("attention.q_down.dx", layer, n, a.q_rank > 0 ? a.q_rank : a.q_width(), d.width);
    } else {
      product_dx("attention.qkv.dx", layer, n, width, d.width, 1, d.norms_before ? 0.0f : 1.0f);
    }
    g.finish(n);
    if (d.norms_before) stream_norm_backward();
  }

  void ffn_backward(const FeedForward& f, int layer, Keep keep, WeightGradients& g) {
    const auto here = ctx.inside({"feed-forward", layer});
    auto whole = ctx.arena.scope();
    const std::int64_t n = rows(), routed = n * f.experts_of_token, in = f.in_width(f.width);
    const bool act_kept = keep == Keep::everything;
    if (d.norms_after) {
      (void)make("ffn.dout", layer, type(), {n, d.width});
      norm_backward(d.width, Gradient::overwrite);
    }
    if (f.experts == 0) {
      {
        auto scope = ctx.arena.scope();
        if (act_kept) (void)make("ffn.dact", layer, type(), {n, f.width});
        product_dx("ffn.down.dx", layer, n, d.width, f.width);
        activate_backward(f, n, f.width, act_kept);
      }
      if (f.bias) bias::backward(view(type(), {n, d.width}), view(DType::f32, {d.width}), Gradient::overwrite, ctx);
      g.add("ffn.down.dw", layer, n, d.width, f.width);
      if (f.bias) bias::backward(view(type(), {n, in}), view(DType::f32, {in}), Gradient::overwrite, ctx);
      g.add("ffn.gate_up.dw", layer, n, in, d.width);
      if (g.none() && d.norms_before) (void)make("norm2.dy", layer, type(), {n, d.width});
      product_dx("ffn.gate_up.dx", layer, n, in, d.width, 1, d.norms_before ? 0.0f : 1.0f);
    } else {
      (void)make("experts.dy", layer, type(), {routed, d.width});
      elementwise("experts.dy", layer, 2.0 * double(routed) * double(d.width) + double(n) * double(d.width));
      (void)make("router.dlogits", layer, DType::f32, {n, f.experts});
      {
        auto scope = ctx.arena.scope();
        if (act_kept) (void)make("experts.dact", layer, type(), {routed, f.width});
        product_dx("experts.down.dx", layer, routed, d.width, f.width, touched(f));
        activate_backward(f, routed, f.width, act_kept);
      }
      g.add("experts.down.dw", layer, routed, d.width, f.width, std::max<std::int64_t>(f.experts, 2));
      g.add("experts.gate_up.dw", layer, routed, in, d.width, std::max<std::int64_t>(f.experts, 2));
      product_dx("experts.gate_up.dx", layer, routed, in, d.width, touched(f));  // in the place of experts.x
      if (f.shared_width > 0) {
        const std::int64_t shared = f.in_width(f.shared_width);
        {
          auto scope = ctx.arena.scope();
          if (act_kept) (void)make("shared.dact", layer, type(), {n, f.shared_width});
          product_dx("shared.down.dx", layer, n, d.width, f.shared_width);
          activate_backward(f, n, f.shared_width, act_kept);
        }
        g.add("shared.down.dw", layer, n, d.width, f.shared_width);
        g.add("shared.gate_up.dw", layer, n, shared, d.width);
        product_dx("shared.gate_up.dx", layer, n, shared, d.width);
      }
      g.add("router.dw", layer, n, f.experts, d.width);
      product_dx("router.dx", layer, n, f.experts, d.width);
      if (!d.norms_before) (void)make("norm2.dy", layer, type(), {n, d.width});
      elementwise("experts.dx", layer, double(routed + n) * double(d.width));
    }
    g.finish(n);
    if (d.norms_before) stream_norm_backward();
  }
};

// Training's passes (training.cpp), over a decoder's layers.
struct CountedTraining::Run {
  const Recipe r;
  const Decoder d;
  Context& ctx;
  dist::Comm* comm;
  ParamStore store;
  Passes pass;
  Tensor losses, loss, state, tokens;
  Tensor numbers{};  // of an update that happens during backward

  Run(const Recipe& recipe, Context& c, dist::Comm* given)
      : r(recipe),
        d(decoder_of(recipe.model)),
        ctx(c),
        comm(recipe.ranks.count > 1 ? given : nullptr),
        store(r.model, {r.precision.dtype, r.purpose, r.holding, r.ranks, r.micro_batches}, c, comm),
        pass{d, r.batch, r.len, r.len, r.precision, r.attention, c} {
    const std::int64_t rows = pass.rows();
    {
      auto phase = ctx.arena.in_phase(Phase::input);
      tokens = ctx.arena.make("tokens", DType::i32, {r.micro_batches, rows});
      (void)ctx.arena.make("targets", DType::i32, {r.micro_batches, rows});
      make_rope_tables();
      losses = ctx.arena.make("losses", DType::f32, {rows});
      loss = ctx.arena.make("loss", DType::f64, {r.ranks.count, r.micro_batches});
    }
    auto phase = ctx.arena.in_phase(Phase::optimizer);
    state = ctx.arena.make("adamw.state", DType::f64, {adamw::state_size});
  }

  void make_rope_tables() {
    std::vector<const SelfAttention*> ways;
    for (const DecoderLayer& l : d.layers) {
      const auto same = [&](const SelfAttention* w) { return w->turned == l.attention.turned; };
      if (d.positions > 0 || std::any_of(ways.begin(), ways.end(), same)) continue;
      ways.push_back(&l.attention);
      (void)ctx.arena.make("rope.table", DType::f32, {r.len, l.attention.turned_dim()});
    }
  }
  int layers() const { return int(d.layers.size()); }
  int last() const { return group_of_layer(layers()); }
  Tensor stream(Name name) { return ctx.arena.make(name, pass.type(), {pass.rows(), d.width}); }
  Keep keep(int i) const { return r.keep[r.keep.size() == 1 ? 0 : std::size_t(i)]; }

  void embed(const Tensor& x) {
    (void)store.lease(0, Pass::forward);
    store.prefetch(1, Pass::forward);
    const auto here = ctx.inside("embedding");
    embedding::forward(view(d.tied ? pass.type() : DType::f32, {d.vocab, d.width}), view(DType::i32, {pass.rows()}), x, ctx);
    if (d.positions > 0) bias::add(view(pass.type(), {r.batch, r.len * d.width}), view(DType::f32, {r.len * d.width}), ctx);
  }

  void head(bool backward) {
    (void)store.lease(last(), backward ? Pass::backward : Pass::forward);
    const auto here = ctx.inside("head");
    auto scope = ctx.arena.scope();
    const std::int64_t rows = pass.rows();
    const DType logits_type = type_of(r.logits, pass.type());
    const std::int64_t chunk =
        r.loss_rows > 0 ? std::min(r.loss_rows, rows) : chunk_of(r.model, pass.type(), logits_type, ctx.device, rows);
    const Tensor n = ctx.arena.make("final_norm.y", pass.type(), {rows, d.width});
    (void)ctx.arena.make("final_norm.rstd", DType::f32, {rows});
    if (d.layer_norm) (void)ctx.arena.make("final_norm.mean", DType::f32, {rows});
    pass.stream_norm();
    {
      auto chunks = ctx.arena.scope();
      const Tensor logits = ctx.arena.make("logits", logits_type, {chunk, d.vocab}), table = view(pass.type(), {d.vocab, d.width});
      for (std::int64_t row = 0; row < rows; row += chunk) {
        const auto end = std::min(rows, row + chunk);
        const Tensor part_n = matmul::part(n, 0, row, end), part_logits = matmul::part(logits, 0, 0, end - row);
        matmul::multiply({part_n, transposed(table), part_logits, 1, 0, r.precision.math}, ctx, "head");
        const Tensor dlogits = backward ? cross_entropy::gradient_inside(part_logits, pass.type()) : Tensor();
        cross_entropy::run(
            {part_logits, view(DType::i32, {end - row}), matmul::part(losses, 0, row, end), dlogits, 1, nullptr, float(d.logit_softcap)},
            ctx);
        if (!backward) continue;
        const Tensor dw = view(DType::f32, {d.vocab, d.width});
        matmul::multiply({transposed(dlogits), part_n, dw, 1, row == 0 ? 0.0f : 1.0f, r.precision.math}, ctx, "head.dw");
        matmul::multiply({dlogits, table, part_n, 1, 0, r.precision.math}, ctx, "head.dx");
      }
    }
    if (backward) pass.stream_norm_backward(Gradient::overwrite);
  }

  void layer_forward(int i, Keep kept) {  // where it keeps anything, that has been made
    const DecoderLayer& l = d.layers[std::size_t(i)];
    (void)store.lease(group_of_layer(i), Pass::forward);
    store.prefetch(group_of_layer(i) + 1, Pass::forward);
    auto scope = ctx.arena.scope();
    if (kept == Keep::input) (void)stream({"h", i});
    {
      auto half = ctx.arena.scope();
      pass.make_items(pass.attention_items(l.attention), kept, false, i);
      pass.attention_forward(l.attention, i, kept, true, true);
    }
    auto half = ctx.arena.scope();
    pass.make_items(pass.ffn_items(l.ffn), kept, false, i);
    pass.ffn_forward(l.ffn, i, kept, true, true);
  }

  void layer_backward(int i, Keep kept) {
    const DecoderLayer& l = d.layers[std::size_t(i)];
    const auto attention = pass.attention_items(l.attention), ffn = pass.ffn_items(l.ffn);
    (void)store.lease(group_of_layer(i), Pass::backward);
    if (i % r.group > 0 || r.group == 1) store.prefetch(group_of_layer(i) - 1, Pass::backward);
    Passes::WeightGradients g{pass, r, numbers};
    auto scope = ctx.arena.scope();
    if (kept == Keep::input) {
      (void)stream({"h", i});
      pass.make_items(attention, kept, false, i);
      pass.attention_forward(l.attention, i, kept, false, true);
    }
    {
      auto half = ctx.arena.scope();
      pass.make_items(ffn, kept, false, i);
      pass.ffn_forward(l.ffn, i, kept, false, false);
      pass.ffn_backward(l.ffn, i, kept, g);
    }
    if (kept != Keep::input) {
      pass.make_items(attention, kept, false, i);
      pass.attention_forward(l.attention, i, kept, false, false);
    }
    pass.attention_backward(l.attention, i, g);
  }

  void descend(int i) {
    if (i == layers()) {
      auto phase = ctx.arena.in_phase(Phase::backward);
      head(true);
      return store.finish(last());
    }
    auto scope = ctx.arena.scope();
    const int end = std::min(i + r.group, layers());
    (void)stream({"y", end - 1});
    if (r.group == 1) {
      auto saved = ctx.arena.in_phase(Phase::saved);
      make_kept(i);
    }
    {
      auto phase = ctx.arena.in_phase(Phase::forward);
      for (int b = i; b < end; ++b) layer_forward(b, r.group > 1 ? Keep::input : keep(b));
    }
    descend(end);
    auto phase = ctx.arena.in_phase(Phase::backward);
    if (r.group > 1) return backward_group(i, end);
    layer_backward(i, keep(i));
    store.finish(group_of_layer(i));
  }

  void make_kept(int i) {
    const DecoderLayer& l = d.layers[std::size_t(i)];
    pass.make_items(pass.attention_items(l.attention), keep(i), true, i);
    if (keep(i) != Keep::input) (void)stream({"h", i});
    pass.make_items(pass.ffn_items(l.ffn), keep(i), true, i);
  }

  void backward_group(int i, int end) {
    const bool last_one = i + 1 == end;
    auto scope = ctx.arena.scope();
    if (!last_one) {
      (void)stream({"y", i});
      make_kept(i);
      layer_forward(i, keep(i));
      backward_group(i + 1, end);
    }
    layer_backward(i, last_one ? Keep::input : keep(i));
    store.finish(group_of_layer(i));
  }

  void gather_losses() {
    if (!comm) return;
    const double bytes = double(loss.bytes());
    const auto op = ctx.note("losses", {DType::f64}, {0, 2 * bytes, sent_bytes(dist::Call::gather, bytes, comm->ranks())});
    comm->carries("losses");
    comm->gather(Tensor(loss.data, DType::f64, {r.micro_batches}), loss, ctx.stream);
  }

  void forward() {
    auto scope = ctx.arena.scope();
    auto phase = ctx.arena.in_phase(Phase::forward);
    store.begin(0);
    embed(stream("x"));
    for (int i = 0; i < layers(); ++i) layer_forward(i, Keep::input);
    head(false);
    store.end();
    cross_entropy::add_up(losses, 1, false, Tensor(loss.data, DType::f64, {1}), ctx);
    gather_losses();
  }

  void backward(int micro) {
    store.begin(micro);
    auto scope = ctx.arena.scope();
    auto phase = ctx.arena.in_phase(Phase::backward);
    (void)stream("d");
    {
      auto saved = ctx.arena.in_phase(Phase::saved);
      const Tensor x = stream("x");
      {
        auto in_forward = ctx.arena.in_phase(Phase::forward);
        embed(x);
      }
      descend(0);
    }
    {
      const auto here = ctx.inside("embedding");
      (void)store.lease(0, Pass::backward);
      embedding::backward(view(DType::i32, {pass.rows()}), view(pass.type(), {pass.rows(), d.width}), view(DType::f32, {d.vocab, d.width}),
                          d.tied ? Gradient::accumulate : Gradient::overwrite, ctx);
      if (d.positions > 0)
        bias::backward(view(pass.type(), {r.batch, r.len * d.width}), view(DType::f32, {r.len * d.width}), Gradient::overwrite, ctx);
    }
    store.finish(0);
    cross_entropy::add_up(losses, 1, false, Tensor(loss.data, DType::f64, {1}), ctx);
    if (micro + 1 < r.micro_batches) return;
    store.end();
    gather_losses();
  }
};

CountedTraining::CountedTraining(const Recipe& r, Context& ctx, dist::Comm* comm) {
  check(ctx.dry(), Code::unsupported, "model {}: it is counted, not run", r.model.name);
  check(r);
  run_ = std::make_unique<Run>(r, ctx, comm);
}
CountedTraining::~CountedTraining() = default;

void CountedTraining::forward() { run_->forward(); }
void CountedTraining::backward(int micro) { run_->backward(micro); }

void CountedTraining::update(const adamw::Hyper& hyper) {
  Context& ctx = run_->ctx;
  adamw::set_rate(run_->state, hyper.lr, ctx);
  auto scope = ctx.arena.scope();
  run_->store.step(run_->store.norm(hyper, run_->state));
}

void CountedTraining::passes(const adamw::Hyper& hyper) {
  if (run_->r.holding.updating == Updating::during) {
    auto scope = run_->ctx.arena.scope();
    {
      auto phase = run_->ctx.arena.in_phase(Phase::optimizer);
      run_->numbers = adamw::begin(run_->state, hyper, run_->ctx);
      run_->store.update_with(run_->numbers);
    }
    backward(0);
    return run_->store.update_with({});
  }
  for (int micro = 0; micro < run_->r.micro_batches; ++micro) backward(micro);
  update(hyper);
}

void run_inference(const Decoder& d, const Generation& g, Inference how, Context& ctx) {
  check(ctx.dry(), Code::unsupported, "inference is counted, not run");
  check(g.batch >= 1 && g.len >= 1 && double(g.batch) * double(g.len) < 0x1p31, Code::bad_argument,
        "inference: batch {} times len {} must be 1 to 2^31 tokens", g.batch, g.len);
  const DType type = g.precision.dtype;
  {
    auto phase = ctx.arena.in_phase(Phase::parameter);
    for (const ParamSpec& s : param_table(d)) (void)ctx.arena.make({s.name, s.layer}, type, s.shape);
    auto saved = ctx.arena.in_phase(Phase::saved);
    for (int i = 0; i < int(d.layers.size()); ++i) {
      const SelfAttention& a = d.layers[std::size_t(i)].attention;
      (void)ctx.arena.make({"cache", i}, type, {g.batch, a.window > 0 ? std::min(a.window, g.len) : g.len, a.cached()});
    }
  }
  Passes pass{d, g.batch, how == Inference::prefill ? g.len : 1, g.len, g.precision, g.attention, ctx};
  auto phase = ctx.arena.in_phase(Phase::forward);
  const std::int64_t rows = pass.rows();
  (void)ctx.arena.make("tokens", DType::i32, {rows});
  const Tensor x = ctx.arena.make("x", type, {rows, d.width});
  embedding::forward(view(type, {d.vocab, d.width}), view(DType::i32, {rows}), x, ctx);
  for (int i = 0; i < int(d.layers.size()); ++i) {
    const DecoderLayer& l = d.layers[std::size_t(i)];
    auto scope = ctx.arena.scope();
    (void)ctx.arena.make({"h", i}, type, {rows, d.width});
    {
      auto half = ctx.arena.scope();
      pass.make_items(pass.attention_items(l.attention), Keep::input, false, i);
      pass.attention_forward(l.attention, i, Keep::input, true, true);
    }
    auto half = ctx.arena.scope();
    pass.make_items(pass.ffn_items(l.ffn), Keep::input, false, i);
    pass.ffn_forward(l.ffn, i, Keep::input, true, true);
  }
  auto scope = ctx.arena.scope();  // the last position of each sequence
  const Tensor n = ctx.arena.make("final_norm.y", type, {g.batch, d.width}),
               logits = ctx.arena.make("logits", DType::f32, {g.batch, d.vocab});
  matmul::multiply({n, transposed(view(type, {d.vocab, d.width})), logits, 1, 0, g.precision.math}, ctx, "head");
}

const attention::Variant& counted_variant(const Decoder& d, const Recipe& r, Context& ctx) {
  return serving_variant(problem_of(d.layers[0].attention, r.batch, r.len, r.len, r.precision), r.attention, ctx);
}

bool counted_stands_in(const Decoder& d, const Recipe& r, Context& ctx) {
  const auto p = problem_of(d.layers[0].attention, r.batch, r.len, r.len, r.precision);
  const auto& v = counted_variant(d, r, ctx);
  return !v.supports(p, ctx.device, attention::Pass::forward) || !v.supports(p, ctx.device, attention::Pass::backward);
}

double counted_model_flops(const Decoder& d, const Recipe& r) {
  double multiplied = 0, attention = 0;
  for (const ParamSpec& s : param_table(d)) {
    if (!s.multiplied) continue;
    const bool of_expert = s.shape.rank == 3;
    const double share = of_expert ? double(d.layers[std::size_t(s.layer)].ffn.experts_of_token) / double(s.shape[0]) : 1;
    multiplied += share * double(s.shape.count());
  }
  for (const DecoderLayer& l : d.layers) {
    const auto p = r.documents.of(problem_of(l.attention, r.batch, r.len, r.len, r.formats().stored));
    attention += attention::forward_flops(p) / r.ranks.parts();
  }
  const double rows = double(r.rows_of_rank());
  const bool forward = r.purpose == Purpose::forward;
  return 2 * multiplied * rows * (forward ? 1 : 3) + attention * (forward ? 1 : 3.5);
}

}  // namespace headroom::engine
