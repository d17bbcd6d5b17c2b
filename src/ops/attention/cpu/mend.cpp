#include "ops/attention/mend/mend.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/convert.h"
#include "ops/attention/alibi.h"
#include "ops/attention/dropout.h"
#include "ops/attention/row.h"

namespace headroom::attention {

namespace {

template <class T>
bool holds_nan(const T* row, std::int64_t dim) {
  return std::any_of(row, row + dim, [](T x) { return std::isnan(widen(x)); });
}
bool holds_nan(const std::vector<float>& row) { return holds_nan(row.data(), std::int64_t(row.size())); }

template <class T>
float dot(const T* a, const T* b, std::int64_t dim) {
  float sum = 0;
  for (std::int64_t d = 0; d < dim; ++d) sum += widen(a[d]) * widen(b[d]);
  return sum;
}
template <class T>
void add(std::vector<float>& to, float factor, const T* row) {
  for (std::size_t d = 0; d < to.size(); ++d) to[d] += factor * widen(row[d]);
}
template <class T>
void replace(T* row, const std::vector<float>& by, float factor) {
  if (holds_nan(by)) return;
  for (std::size_t d = 0; d < by.size(); ++d) row[d] = narrow<T>(by[d] * factor);
}

struct Weight {
  float p, slope;  // the probability of a pair, and the slope of its score by the product of its vectors, without the scale
};
Weight weight_of(const Problem& p, float product, float fall, float lse) {  // fall: alibi.h
  float score = product * p.scale_or_default(), slope = 1;
  if (p.softcap != 0) {
    const float t = std::tanh(score / p.softcap);
    score = p.softcap * t;
    slope = (1 - t) * (1 + t);
  }
  return {std::exp(std::min(score - fall - lse, 0.0f)), slope};
}

template <class T>
const T* key_row(const Problem& p, const Forward& t, const Tensor& of, std::int64_t b, std::int64_t key, std::int64_t kv_head) {
  if (p.page == 0) return row_of<const T>(of, b, key, kv_head);
  const std::int32_t page = t.with.pages.as<std::int32_t>()[b * p.pages_of_sequence() + key / p.page];
  return page < 0 || page >= p.pages ? nullptr : row_of<const T>(of, page, key % p.page, kv_head);
}

template <class T>
void mend_o(const Problem& p, const Forward& t, const Band& band, const std::optional<Dropping>& dropping, const Alibi& alibi,
            std::int64_t b, std::int64_t head, std::int64_t row) {
  const float lse = t.lse.as<float>()[(b * p.heads + head) * p.len_q + row];
  T* const o = row_of<T>(t.o, b, row, head);
  if (std::isnan(lse) || !holds_nan(o, p.value_dim())) return;
  const T* const q = row_of<const T>(t.q, b, row, head);
  std::vector<float> sum(std::size_t(p.value_dim()));
  if (std::isinf(lse) && (lse < 0 || p.sink)) return replace(o, sum, 1);  // it sees no key, or its sink takes all
  float all = p.sink ? std::exp(t.with.sink.as<float>()[head] - lse) : 0.0f;
  for (std::int64_t key = band.first(row); key < band.last(row); ++key) {
    const T *k = key_row<T>(p, t, t.k, b, key, head / p.group()), *v = key_row<T>(p, t, t.v, b, key, head / p.group());
    if (!k) continue;
    const float weight = weight_of(p, dot(q, k, p.head_dim), alibi.fall(b, head, row, key), lse).p;
    all += weight;
    add(sum, weight * factor_of(dropping, b * p.heads + head, row, key), v);
  }
  replace(o, sum, 1 / all);
}

// The pairs of one row of the batch, as the gradients see them.
template <class T>
struct Pairs {
  const Problem& p;
  const Backward& t;
  const Band& band;
  const std::optional<Dropping>& dropping;
  const Alibi& alibi;
  std::int64_t b;

  float lse(std::int64_t head, std::int64_t row) const { return t.lse.as<float>()[(b * p.heads + head) * p.len_q + row]; }
  float delta(std::int64_t head, std::int64_t row) const {
    const float sum = dot(row_of<const T>(t.o, b, row, head), row_of<const T>(t.d_o, b, row, head), p.value_dim());
    return t.dlse ? sum - t.dlse.as<float>()[(b * p.heads + head) * p.len_q + row] : sum;
  }
  struct Gradient {
    float p, ds;
  };
  Gradient at(std::int64_t head, std::int64_t row, std::int64_t key, float lse, float delta) const {
    const std::int64_t kv_head = head / p.group();
    const float fall = alibi.fall(b, head, row, key);
    const Weight w = weight_of(p, dot(row_of<const T>(t.q, b, row, head), row_of<const T>(t.k, b, key, kv_head), p.head_dim), fall, lse);
    const float dp = dot(row_of<const T>(t.d_o, b, row, head), row_of<const T>(t.v, b, key, kv_head), p.value_dim());
    const float factor = factor_of(dropping, b * p.heads + head, row, key);
    return {w.p * factor, w.p * (dp * factor - delta) * w.slope};
  }

  void mend_dq(std::int64_t head, std::int64_t row) const {
    T* const dq = row_of<T>(t.dq, b, row, head);
    if (!holds_nan(dq, p.head_dim)) return;
    std::vector<float> sum(std::size_t(p.head_dim));
    const float own = lse(head, row), change = delta(head, row);
    for (std::int64_t key = band.first(row); key < band.last(row); ++key)
      add(sum, at(head, row, key, own, change).ds, row_of<const T>(t.k, b, key, head / p.group()));
    replace(dq, sum, p.scale_or_default());
  }
  void mend_dk_dv(std::int64_t kv_head, std::int64_t key) const {
    T *const dk = row_of<T>(t.dk, b, key, kv_head), *const dv = row_of<T>(t.dv, b, key, kv_head);
    if (!holds_nan(dk, p.head_dim) && !holds_nan(dv, p.value_dim())) return;
    std::vector<float> sum_k(std::size_t(p.head_dim)), sum_v(std::size_t(p.value_dim()));
    for (std::int64_t head = kv_head * p.group(); head < (kv_head + 1) * p.group(); ++head)
      for (std::int64_t row = band.first_row(key); row < band.last_row(key); ++row) {
        if (!band.sees(row, key)) continue;
        const Gradient g = at(head, row, key, lse(head, row), delta(head, row));
        add(sum_k, g.ds, row_of<const T>(t.q, b, row, head));
        add(sum_v, g.p, row_of<const T>(t.d_o, b, row, head));
      }
    replace(dk, sum_k, p.scale_or_default());
    replace(dv, sum_v, 1);
  }
};

}  // namespace

void mend_forward(const Problem& p, const Forward& t, const Lists& lists, Context& ctx) {
  if (p.documents == 0 || ctx.dry()) return;
  const auto dropping = dropping_of(p, t.with);
  const Alibi alibi = alibi_of(p, t.with);
  with_float(p.precision.dtype, [&]<class T>() {
    ctx.share(p.batch * p.len_q, [&](std::int64_t at, int) {
      const Band band = band_of(p, lists, at / p.len_q);
      for (std::int64_t head = 0; head < p.heads; ++head) mend_o<T>(p, t, band, dropping, alibi, at / p.len_q, head, at % p.len_q);
    });
  });
}

void mend_backward(const Problem& p, const Backward& t, const Lists& lists, Context& ctx) {
  if (p.documents == 0 || ctx.dry()) return;
  const auto dropping = dropping_of(p, t.with);
  const Alibi alibi = alibi_of(p, t.with);
  with_float(p.precision.dtype, [&]<class T>() {
    ctx.share(p.batch * p.len_q, [&](std::int64_t at, int) {
      const Band band = band_of(p, lists, at / p.len_q);
      const Pairs<T> pairs{p, t, band, dropping, alibi, at / p.len_q};
      for (std::int64_t head = 0; head < p.heads; ++head) pairs.mend_dq(head, at % p.len_q);
    });
    ctx.share(p.batch * p.len_k, [&](std::int64_t at, int) {
      const Band band = band_of(p, lists, at / p.len_k);
      const Pairs<T> pairs{p, t, band, dropping, alibi, at / p.len_k};
      for (std::int64_t head = 0; head < p.kv_heads; ++head) pairs.mend_dk_dv(head, at % p.len_k);
    });
  });
}

}  // namespace headroom::attention
