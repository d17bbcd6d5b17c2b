// plain — S = Q Kᵀ and P = softmax(S) are whole matrices, and P is kept for backward: the honest baseline.
//
// Forward:  S (FP32, scratch) = scale·Q Kᵀ → P (storage type, kept) → O = P V.
// Backward: dV = Pᵀ dO; dP (FP32, scratch) = dO Vᵀ; dS = P∘(dP − Δ) in its place, Δ = Σ_d dO·O − dLSE; dQ = scale·dS K; dK = scale·dSᵀ Q.
// Dropout: P is kept whole; the products take a copy without what is dropped, and grow by its factor; dP takes the factors before dS.
// Every product is one call of ops/matmul; query heads that share a key head take turns, so their gradients add up in a fixed order.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/convert.h"
#include "base/element.h"
#include "ops/attention/alibi.h"
#include "ops/attention/cpu/plain_softmax.h"
#include "ops/attention/documents/documents.h"
#include "ops/attention/dropout.h"
#include "ops/attention/impl.h"
#include "ops/attention/mend/mend.h"
#include "ops/attention/row.h"
#include "ops/attention/sink.h"
#include "ops/matmul/matmul.h"

namespace headroom::attention {

namespace {

using matmul::transposed;

// The heads g, g + group, … as a batch of matrices. q-like: [batch, len, heads, dim] → [batch, kv_heads, len, dim]. They are the
// heads whose key head is counted 0, 1, 2, …: query head h reads key head h / group.
Tensor heads_of_group(const Tensor& t, std::int64_t group, std::int64_t g) {
  Tensor out = t;
  out.data = element_of(t, g * t.stride[2]);
  out.shape = {t.shape[0], t.shape[2] / group, t.shape[1], t.shape[3]};
  out.stride = {t.stride[0], t.stride[2] * group, t.stride[1], t.stride[3]};
  return out;
}
Tensor scores_of_group(const Tensor& t, std::int64_t group, std::int64_t g) {  // [batch, heads, len_q, len_k]
  Tensor out = t;
  out.data = element_of(t, g * t.stride[1]);
  out.shape = {t.shape[0], t.shape[1] / group, t.shape[2], t.shape[3]};
  out.stride[1] *= group;
  return out;
}

struct SeenKeys {
  std::int64_t first, last;
};

void fall(float* s, SeenKeys seen, float slope, std::int64_t own) {  // own: the key that the row is at
  for (auto j = seen.first; j < seen.last; ++j) s[j] -= slope * float(std::abs(own - j));
}

template <class T>
float softmax_row(float* s, T* p, SeenKeys seen, const float* sink, std::int64_t len) {  // s is used up; returns LSE
  std::fill(p, p + len, narrow<T>(0));
  const auto [first, last] = seen;
  if (first >= last) return sink ? *sink : -std::numeric_limits<float>::infinity();
  const RowSum row = exponentials_of_row(s + first, last - first);
  if (sink) {
    const Joined all = join_sink(row.top, row.sum, *sink);
    for (auto j = first; j < last; ++j) p[j] = narrow<T>(s[j] * all.weight);
    return all.lse;
  }
  for (auto j = first; j < last; ++j) p[j] = narrow<T>(s[j] / row.sum);
  return row.top + std::log(row.sum);
}

Cost with_scores(const Problem& p, Cost cost, int passes) {  // over whole matrices of them
  const double size = double(size_of(p.precision.dtype)), scores = double(p.batch) * double(p.heads) * double(p.len_q) * double(p.len_k);
  cost.bytes += passes * (size + 4) * scores;
  return cost;
}

// P without what dropout drops: scratch; P itself where there is none.
Tensor dropped_p(const Problem& p, const Tensor& kept, Context& ctx) {
  return p.dropout != 0 ? ctx.arena.make("p_dropped", p.precision.dtype, kept.shape) : kept;
}

// A row of it, and the row's factors: 0 or `factor`.
template <class T>
std::vector<float> drop_row(const Dropping& dropping, const Problem& p, std::int64_t at, SeenKeys seen, const T* prob, T* to) {
  std::vector<float> factors(std::size_t(std::max<std::int64_t>(seen.last - seen.first, 0)));
  dropout_factors(dropping, at / p.len_q, at % p.len_q, seen.first, seen.last, dropping.dropout.factor, factors.data());
  std::fill(to, to + p.len_k, narrow<T>(0));
  for (std::size_t j = 0; j < factors.size(); ++j)
    if (factors[j] != 0) to[seen.first + std::int64_t(j)] = prob[seen.first + std::int64_t(j)];
  return factors;
}

// The two products and the softmax of a plain attention, each seen apart by a listener.
struct PlainParts {
  const Problem& p;
  Context& ctx;
  Context inner;
  PlainParts(const Problem& problem, Context& c) : p(problem), ctx(c), inner(c) {
    inner.walk = nullptr;
    inner.listener = nullptr;  // the products are part of this op
  }
  void product(const char* part, const matmul::Product& m) {
    const auto running = ctx.part(part, p.precision, matmul::cost_of(m), Work::matmul);
    matmul::multiply(m, inner);
  }
  Running softmax(double flops_of_each, double flops_of_row, double bytes_of_each) const {
    const double rows = double(p.lse_shape().count()), visible = double(p.batch * p.heads) * p.visible();
    return ctx.part("softmax", p.precision, {flops_of_each * visible + flops_of_row * rows, bytes_of_each * rows * double(p.len_k)},
                    Work::softmax);
  }
};

}  // namespace

Support plain_supports(const Problem& p, const Device& device, Pass) {
  if (device.kind != DeviceKind::cpu) return Support::no("needs the CPU");
  if (p.precision.math != Math::exact) return Support::no("tf32 needs a GPU");
  if (size_of(p.precision.dtype) < 2) return Support::no("fp8 is not served on the CPU");
  return asks_no_more_than(p, {.softcap = true, .sink = true, .documents = true, .dim_v = true, .dropout = true, .alibi = true});
}

Saved plain_make_saved(const Problem& p, Context& ctx) {
  return {ctx.arena.make("p", p.precision.dtype, {p.batch, p.heads, p.len_q, p.len_k})};
}

void plain_forward(const Problem& p, const Forward& t, Context& ctx) {
  const Lists lists = make_lists(p, ctx);
  const Tensor s = ctx.arena.make("s", DType::f32, {p.batch, p.heads, p.len_q, p.len_k});
  const Tensor used = dropped_p(p, t.saved.p, ctx);
  const auto op = ctx.note("attention.plain.forward", p.precision, with_scores(p, forward_cost(p), 2), Work::attention_parts);
  PlainParts parts(p, ctx);
  const auto group = p.group();
  const float factor = dropout_of(p, t.with).factor;
  for (std::int64_t g = 0; g < group; ++g)
    parts.product("scores", {heads_of_group(t.q, group, g), transposed(heads_of_group(t.k, 1, 0)), scores_of_group(s, group, g),
                             p.scale_or_default()});
  if (!ctx.dry()) {  // subtract the maximum, exponential, sum, divide; and the maximum
    const auto running = parts.softmax(5, 2, 8.0 + double(size_of(p.precision.dtype)));
    list_documents(p, t.with, lists, ctx);
    const auto dropping = dropping_of(p, t.with);
    const Alibi alibi = alibi_of(p, t.with);
    with_float(p.precision.dtype, [&]<class T>() {
      ctx.share(p.lse_shape().count(), [&](std::int64_t at, int) {
        const auto row = at % p.len_q, head = at / p.len_q % p.heads, b = at / (p.len_q * p.heads);
        const Band band = band_of(p, lists, b);
        const SeenKeys seen{band.first(row), band.last(row)};
        float* const scores = s.as<float>() + at * p.len_k;
        if (p.softcap != 0 && seen.first < seen.last) cap_row(scores + seen.first, seen.last - seen.first, p.softcap);
        if (const Alibi::Spot spot = alibi.of_row(int(b), int(row)); alibi.slopes)
          fall(scores, seen, alibi.slope(spot, int(head)), spot.place);
        const float* const sink = p.sink ? t.with.sink.as<float>() + head : nullptr;
        T* const prob = t.saved.p.as<T>() + at * p.len_k;
        t.lse.as<float>()[at] = softmax_row(scores, prob, seen, sink, p.len_k);
        if (dropping) drop_row(*dropping, p, at, seen, prob, used.as<T>() + at * p.len_k);
      });
    });
  }
  for (std::int64_t g = 0; g < group; ++g)
    parts.product("values", {scores_of_group(used, group, g), heads_of_group(t.v, 1, 0), heads_of_group(t.o, group, g), factor});
  mend_forward(p, t, lists, ctx);
}

void plain_backward(const Problem& p, const Backward& t, Context& ctx) {
  const Lists lists = make_lists(p, ctx);
  const Shape scores{p.batch, p.heads, p.len_q, p.len_k};
  const Tensor ds = ctx.arena.make("ds", DType::f32, scores);
  const Tensor s =
      p.softcap != 0 ? ctx.arena.make("s", DType::f32, scores) : Tensor();  // formed again: P alone does not tell the cap's slope
  const Tensor used = dropped_p(p, t.saved.p, ctx);
  const Tensor deltas = t.dsink ? ctx.arena.make("delta", DType::f32, p.lse_shape()) : Tensor();
  const auto op =
      ctx.note("attention.plain.backward", p.precision, with_scores(p, backward_cost(p), 4), Work::attention_parts, Making::gradients);
  PlainParts parts(p, ctx);
  const auto group = p.group();
  const bool gathered = group > 1 && p.precision.dtype != DType::f32;  // sums over the group stay FP32 until the last is in
  const auto scope = ctx.arena.scope();
  const Tensor dk = gathered ? ctx.arena.make("dk", DType::f32, p.k_shape()) : t.dk;
  const Tensor dv = gathered ? ctx.arena.make("dv", DType::f32, p.v_shape()) : t.dv;

  for (std::int64_t g = 0; g < group; ++g) {
    parts.product("values", {heads_of_group(t.d_o, group, g), transposed(heads_of_group(t.v, 1, 0)), scores_of_group(ds, group, g)});
    if (s)
      parts.product("scores", {heads_of_group(t.q, group, g), transposed(heads_of_group(t.k, 1, 0)), scores_of_group(s, group, g),
                               p.scale_or_default()});
  }
  if (!ctx.dry()) {  // P∘(dP − Δ), and Δ
    const auto running = parts.softmax(2, 2.0 * double(p.value_dim()), 8.0 + double(size_of(p.precision.dtype)));
    list_documents(p, t.with, lists, ctx);
    const auto dropping = dropping_of(p, t.with);
    with_float(p.precision.dtype, [&]<class T>() {
      ctx.share(p.lse_shape().count(), [&](std::int64_t at, int) {
        const auto row = at % p.len_q, h = at / p.len_q % p.heads, b = at / (p.len_q * p.heads);
        const Band band = band_of(p, lists, b);
        const T *o = row_of<T>(t.o, b, row, h), *d_o = row_of<T>(t.d_o, b, row, h), *prob = t.saved.p.as<T>() + at * p.len_k;
        float* out = ds.as<float>() + at * p.len_k;
        float delta = t.dlse ? -t.dlse.as<float>()[at] : 0.0f;
        for (std::int64_t d = 0; d < p.value_dim(); ++d) delta += widen(d_o[d]) * widen(o[d]);
        if (deltas) deltas.as<float>()[at] = delta;
        const auto first = std::min(band.first(row), band.last(row)), last = band.last(row);
        if (dropping) {
          const auto factors = drop_row(*dropping, p, at, {first, last}, prob, used.as<T>() + at * p.len_k);
          for (auto j = first; j < last; ++j) out[j] *= factors[std::size_t(j - first)];
        }
        std::fill(out, out + first, 0.0f);
        for (auto j = first; j < last; ++j) out[j] = widen(prob[j]) * (out[j] - delta);
        if (s && first < last) times_slope_of_cap(s.as<float>() + at * p.len_k + first, last - first, p.softcap, out + first);
        std::fill(out + last, out + p.len_k, 0.0f);
      });
    });
    if (t.dsink) sum_dsink(p, t.with.sink, t.lse, deltas, t.dsink, ctx);
  }
  const float scale = p.scale_or_default();
  for (std::int64_t g = 0; g < group; ++g) {
    const float beta = g == 0 ? 0.0f : 1.0f;
    const Tensor ds_g = scores_of_group(ds, group, g);
    parts.product("values", {transposed(scores_of_group(used, group, g)), heads_of_group(t.d_o, group, g), heads_of_group(dv, 1, 0),
                             dropout_of(p, t.with).factor, beta});
    parts.product("scores", {transposed(ds_g), heads_of_group(t.q, group, g), heads_of_group(dk, 1, 0), scale, beta});
    parts.product("scores", {ds_g, heads_of_group(t.k, 1, 0), heads_of_group(t.dq, group, g), scale});
  }
  if (gathered && !ctx.dry())
    with_float(p.precision.dtype, [&]<class T>() {
      ctx.share(p.batch * p.len_k * p.kv_heads, [&](std::int64_t at, int) {
        const auto h = at % p.kv_heads, row = at / p.kv_heads % p.len_k, b = at / (p.kv_heads * p.len_k);
        for (std::int64_t d = 0; d < p.head_dim; ++d) row_of<T>(t.dk, b, row, h)[d] = narrow<T>(row_of<float>(dk, b, row, h)[d]);
        for (std::int64_t d = 0; d < p.value_dim(); ++d) row_of<T>(t.dv, b, row, h)[d] = narrow<T>(row_of<float>(dv, b, row, h)[d]);
      });
    });
  mend_backward(p, t, lists, ctx);
}

}  // namespace headroom::attention
