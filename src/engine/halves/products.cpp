#include "engine/halves/products.h"

#include <algorithm>
#include <cmath>

namespace headroom::engine {

using matmul::transposed;

namespace {

struct NamesOfCopies {
  const char *as_is, *transposed;
};
constexpr NamesOfCopies copies_of[quantised_count] = {
    {"norm1.y.fp8", "norm1.y.fp8.transposed"},
    {"attention.qkv.weight.fp8", "attention.qkv.weight.fp8.transposed"},
    {"attention.o.fp8", "attention.o.fp8.transposed"},
    {"attention.out.weight.fp8", "attention.out.weight.fp8.transposed"},
    {"norm2.y.fp8", "norm2.y.fp8.transposed"},
    {"ffn.gate_up.weight.fp8", "ffn.gate_up.weight.fp8.transposed"},
    {"ffn.act.fp8", "ffn.act.fp8.transposed"},
    {"ffn.down.weight.fp8", "ffn.down.weight.fp8.transposed"},
    {"ffn.d.fp8", "ffn.d.fp8.transposed"},
    {"ffn.dgate_up.fp8", "ffn.dgate_up.fp8.transposed"},
    {"attention.d.fp8", "attention.d.fp8.transposed"},
    {"attention.dqkv.fp8", "attention.dqkv.fp8.transposed"},
};

// A matrix that stands for those of all experts that `rows` reach, so many of them one token's, where every token chooses evenly and by itself;
// or for one that is held in fewer bits, and read in its own bytes.
struct Standing {
  Tensor one;
  double more_bytes = 0;
};
Standing standing(const Tensor& all, double held_bytes, std::int64_t rows, std::int64_t of_token) {
  const bool several = all.shape.rank == 3;
  if (!several && held_bytes == 0) return {all};
  const std::int64_t experts = several ? all.shape[0] : 1;
  const Tensor one = several ? Tensor(all.data, all.dtype, {all.shape[1], all.shape[2]}) : all;
  const double of_one = held_bytes > 0 ? held_bytes / double(experts) : double(one.bytes());
  const double missed = several ? std::pow(1 - double(of_token) / double(experts), double(rows) / double(of_token)) : 0;
  return {one, std::round(double(experts) * (1 - missed) * of_one) - double(one.bytes())};
}

Standing all_of(const Tensor& t) {
  if (t.shape.rank < 3) return {t};
  const Tensor one(t.data, t.dtype, {t.shape[1], t.shape[2]});
  return {one, double(t.bytes()) - double(one.bytes())};
}

ScaledFormat format_of(const Formats& f, Quantised which, bool transposed) {
  switch (which) {
    case Quantised::norm1:
    case Quantised::o:
    case Quantised::norm2:
    case Quantised::act: return f.activation;
    case Quantised::qkv:
    case Quantised::out:
    case Quantised::gate_up:
    case Quantised::down: return f.weight;
    case Quantised::d_ffn:
    case Quantised::d_gate_up:
    case Quantised::d_attention:
    case Quantised::d_qkv: return transposed ? f.gradient_transposed : f.gradient;
  }
  return f.activation;
}

}  // namespace

Scaled Products::make_transposed(const Formats& f, Quantised which, std::int64_t rows, std::int64_t columns, int layer, Context& ctx) {
  return quantise::make({copies_of[std::size_t(which)].transposed, layer}, format_of(f, which, true), columns, rows, ctx);
}

Tensor Products::With::counts_of(Quantised which, int layer) const {
  if (!counts) return {};
  return {counts.as<std::int64_t>() + (layer * quantised_count + int(which)) * quantise::count_size, DType::i64, {quantise::count_size}};
}

bool Products::With::as_made(quantise::Of of, std::int64_t rows, std::int64_t columns, DType type, const Device& device) const {
  return formats.quantised() && !watched && quantise::supports(of, rows, columns, type, device);
}

bool Products::With::gated(const gated_product::Sizes& sizes, const Device& device) const {
  const bool exact = formats.stored.math == Math::exact;
  return !formats.quantised() && !watched && watch == nullptr && exact && gated_product::supports(sizes, formats.stored.dtype, device).ok;
}

Read Products::read(Quantised which, const quantise::Request& from, Copies copies, const Scaled& kept) {
  Read r;
  if (from.of == quantise::Of::stored) r.x = from.x;
  if (!quantised()) return r;
  quantise::Request q = from;
  const auto rows = q.rows(), columns = q.columns();
  if (copies != Copies::transposed)
    r.as_is = quantise::make({copies_of[std::size_t(which)].as_is, layer_}, format_of(with_.formats, which, false), rows, columns, ctx_);
  if (copies != Copies::as_is) r.transposed = kept ? kept : make_transposed(with_.formats, which, rows, columns, layer_, ctx_);
  q.as_is = r.as_is;
  q.transposed = r.transposed;
  q.counts = with_.counts_of(which, layer_);
  quantise::quantise(q, ctx_, {"quantise", layer_});
  return r;
}

Read Products::read_missing(Quantised which, const quantise::Request& from, bool as_is, const Scaled& transposed) {
  if (!as_is && !transposed) return {from.x};
  return read(which, from, !transposed ? Copies::as_is : as_is ? Copies::both : Copies::transposed, transposed);
}

Scaled Products::weight(WeightRole role, Copies copies) {
  const Weight weight = weights_[role];
  if (weight.as_is) return copies == Copies::as_is ? weight.as_is : weight.transposed;
  const Read r = read(quantised_weight(role), weight.w, copies);
  return copies == Copies::as_is ? r.as_is : r.transposed;
}

void Products::multiply(Name name, Multiplied which, const matmul::Product& p, const Tensor& a, const Tensor& b) {
  matmul::multiply(p, ctx_, name, which == Multiplied::forward ? Making::values : Making::gradients);
  if (with_.watch && !ctx_.dry()) with_.watch->product({name, which, a, b, p.c});
}

void Products::forward(Name name, const Read& x, WeightRole role, const Tensor& y, const Tensor& add) {
  auto scope = ctx_.arena.scope();
  const Weight weight_of = weights_[role];
  const auto [w, more] = standing(weight_of.w, weight_of.held_bytes, y.shape[0], with_.experts_of_token);
  matmul::Product p{.a = x.x, .b = transposed(w), .c = y, .beta = add ? 1.0f : 0.0f, .math = with_.formats.stored.math, .add = add};
  p.more_bytes = more;
  if (quantised()) p.a = x.as_is, p.b = transposed(weight(role, Copies::as_is)), p.sums = with_.formats.forward_sums;
  multiply(name, Multiplied::forward, p, x.x, transposed(w));
}

void Products::each_head(Name name, Multiplied which, const Tensor& x, WeightRole role, RowsOfHead part, const Tensor& y) {
  check(!quantised() && which != Multiplied::dw, Code::unsupported,
        "products: a head's part of a weight multiplies activations, not in fp8");
  const Weight all = weights_[role];
  const std::int64_t heads = x.shape[0], in = all.w.shape[1];
  const Tensor w = matmul::part(Tensor(all.w.data, all.w.dtype, {heads, all.w.shape[0] / heads, in}), 1, part.begin, part.end);
  matmul::Product p{.a = x, .b = which == Multiplied::forward ? transposed(w) : w, .c = y, .math = with_.formats.stored.math};
  if (all.held_bytes > 0) p.more_bytes = all.held_bytes * double(w.count()) / double(all.w.count()) - double(w.bytes());
  multiply(name, which, p, x, p.b.values);
}

void Products::dx(Name name, const Read& dy, WeightRole role, const Tensor& dx, Gradient into) {
  auto scope = ctx_.arena.scope();
  const auto [w, more] = standing(weights_[role].w, 0, dx.shape[0], with_.experts_of_token);
  matmul::Product p{.a = dy.x, .b = w, .c = dx, .beta = beta_of(into), .math = with_.formats.stored.math};
  p.more_bytes = more;
  if (quantised()) p.a = dy.as_is, p.b = transposed(weight(role, Copies::transposed)), p.sums = with_.formats.backward_sums;
  multiply(name, Multiplied::dx, p, dy.x, w);
}

void Products::gated_forward(Name name, const Read& x, WeightRole role, const Tensor& gate_up, const Tensor& act) {
  const Weight weight_of = weights_[role];
  const auto [w, more] = standing(weight_of.w, weight_of.held_bytes, gate_up.shape[0], with_.experts_of_token);
  gated_product::forward({.x = x.x, .w = w, .gate_up = gate_up, .act = act, .more_bytes = more}, ctx_, name);
}

void Products::gated_dx(Name name, const Read& dy, WeightRole role, const Tensor& gate_up, const Tensor& act) {
  gated_product::backward({.dy = dy.x, .w = weights_[role].w, .gate_up = gate_up, .act = act}, ctx_, name);
}

void Products::dw(Name name, const Read& dy, const Read& x, WeightRole role) {
  const Weight w = weights_[role];
  if (w.update) {
    check(w.w.shape.rank == 2, Code::unsupported, "step: gradients none are not known of experts' weights; take --gradients half");
    waiting_.at(count_++) = quantised() ? product_update::Item{{}, {}, *w.update, dy.transposed, x.transposed, with_.formats.backward_sums}
                                        : product_update::Item{dy.x, x.x, *w.update};
    numbers_ = w.numbers;
    return;
  }
  const auto [one, more] = all_of(w.dw);
  matmul::Product p{.a = transposed(dy.x), .b = x.x, .c = one, .beta = beta_of(into_), .math = with_.formats.stored.math};
  p.more_bytes = more;
  if (quantised()) p.a = dy.transposed, p.b = transposed(x.transposed), p.sums = with_.formats.backward_sums;
  multiply(name, Multiplied::dw, p, transposed(dy.x), x.x);
}

void Products::finish() {
  const auto all = std::span(waiting_).first(count_);
  for (std::size_t at = 0; at < count_; at += 2)
    product_update::advance(all.subspan(at, std::min<std::size_t>(2, count_ - at)), numbers_, ctx_);
  count_ = 0;
}

}  // namespace headroom::engine
