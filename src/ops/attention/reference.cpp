#include "ops/attention/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/convert.h"
#include "ops/attention/alibi.h"
#include "ops/attention/documents/documents.h"
#include "ops/attention/dropout.h"

namespace headroom::attention {

double load(const Tensor& t, std::int64_t b, std::int64_t row, std::int64_t head, std::int64_t d) {
  return load_element(t.data, t.dtype, b * t.stride[0] + row * t.stride[1] + head * t.stride[2] + d * t.stride[3]);
}

namespace {

std::vector<double> widened(const Tensor& t) {  // contiguous
  std::vector<double> out;
  out.reserve(std::size_t(t.count()));
  for (std::int64_t b = 0; b < t.shape[0]; ++b)
    for (std::int64_t row = 0; row < t.shape[1]; ++row)
      for (std::int64_t head = 0; head < t.shape[2]; ++head)
        for (std::int64_t d = 0; d < t.shape[3]; ++d) out.push_back(load(t, b, row, head, d));
  return out;
}

std::vector<double> gathered(const Problem& p, const Tensor& t, const Tensor& pages) {  // [batch, len_k, kv_heads, dim] of a paged tensor
  std::vector<double> out;
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t j = 0; j < p.len_k; ++j) {
      const std::int64_t page = pages.as<std::int32_t>()[b * p.pages_of_sequence() + j / p.page];
      for (std::int64_t head = 0; head < p.kv_heads; ++head)
        for (std::int64_t d = 0; d < t.shape[3]; ++d)
          out.push_back(page < 0 || page >= p.pages ? 0.0 : load(t, page, j % p.page, head, d));  // no row sees keys without a page
    }
  return out;
}

// In 8 bits: a tensor's numbers times its heads' scales, [batch, len, heads, dim].
std::vector<double> scaled(std::vector<double> all, const Tensor& scale, std::int64_t len, std::int64_t heads, std::int64_t dim) {
  for (std::size_t at = 0; at < all.size(); ++at) {
    const auto i = std::int64_t(at);
    all[at] *= double(scale.as<float>()[i / (len * heads * dim) * heads + i / dim % heads]);
  }
  return all;
}

std::vector<double> values_of_8_bits(const Problem& p, const Tensor& v) {  // [batch, len_k, kv_heads, dim_v] of fp8_layout.h's blocks
  std::vector<double> out;
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t key = 0; key < p.len_k; ++key)
      for (std::int64_t head = 0; head < p.kv_heads; ++head)
        for (std::int64_t d = 0; d < p.value_dim(); ++d)
          out.push_back(load_element(v.data, v.dtype,
                                     b * v.stride[0] + head * v.stride[1] + key / keys_of_v_block * v.stride[2] +
                                         value_at(key % keys_of_v_block, d, p.value_dim())));
  return out;
}

struct Row {                     // one query row: its scores become probabilities
  std::vector<double> p, slope;  // slope: of the capped score by the one before
  std::int64_t first = 0, last = 0;
  double lse = 0;
};

// q: the row; k: the key head's rows, `step` apart.
// fall: what the score of a key falls by.
template <class Fall>
Row softmax_row(const Problem& p, const Band& band, double sink, const double* q, const double* k, std::int64_t step, std::int64_t i,
                Fall fall) {
  const double scale = p.scale_or_default(), cap = p.softcap, nothing = -std::numeric_limits<double>::infinity();
  Row row{.p = std::vector<double>(std::size_t(p.len_k), 0.0), .slope = {}, .first = band.first(i), .last = band.last(i), .lse = nothing};
  row.slope.assign(row.p.size(), 1.0);
  double top = sink;
  for (auto j = row.first; j < row.last; ++j) {
    double dot = 0;
    for (std::int64_t d = 0; d < p.head_dim; ++d) dot += q[d] * k[j * step + d];
    double score = dot * scale;
    if (cap != 0) {
      const double t = std::tanh(score / cap);
      score = cap * t;
      row.slope[std::size_t(j)] = 1 - t * t;
    }
    score -= fall(j);
    row.p[std::size_t(j)] = score;
    top = std::max(top, score);
  }
  double sum = share_of_sink(sink, top);
  for (auto j = row.first; j < row.last; ++j)
    sum += row.p[std::size_t(j)] = std::isinf(top) && top > 0 ? 0 : std::exp(row.p[std::size_t(j)] - top);
  for (auto j = row.first; j < row.last; ++j) row.p[std::size_t(j)] /= sum;
  if (sum != 0) row.lse = top + std::log(sum);
  return row;
}

}  // namespace

double share_of_sink(double sink, double lse) {
  if (std::isinf(sink)) return sink > 0 ? 1 : 0;
  return std::exp(sink - lse);
}

Reference reference(const Problem& p, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& d_o, const Tensor& dlse,
                    const Extras& with) {
  const HostLists lists(p, with);
  const auto dim = p.head_dim, dim_v = p.value_dim(), key_step = p.kv_heads * dim, value_step = p.kv_heads * dim_v;
  const bool gradients = bool(d_o);
  const bool eight_bits = p.operands().q.scaled == ScaledBy::head;
  auto qs = widened(q), gs = gradients ? widened(d_o) : std::vector<double>();
  auto ks = p.page ? gathered(p, k, with.pages) : widened(k);
  auto vs = p.page ? gathered(p, v, with.pages) : eight_bits ? values_of_8_bits(p, v) : widened(v);
  if (eight_bits) {
    qs = scaled(std::move(qs), with.q_scale, p.len_q, p.heads, dim);
    ks = scaled(std::move(ks), with.k_scale, p.len_k, p.kv_heads, dim);
    vs = scaled(std::move(vs), with.v_scale, p.len_k, p.kv_heads, dim_v);
  }
  const auto dropping = dropping_of(p, with);
  const Alibi alibi = alibi_of(p, with);
  const double kept = 1 / (1 - double(dropout_of(p, with).below) / draw_steps);
  Reference r;
  r.o.assign(std::size_t(p.o_shape().count()), 0.0);
  r.lse.assign(std::size_t(p.lse_shape().count()), 0.0);
  if (gradients) {
    r.dq.assign(qs.size(), 0.0);
    r.dk.assign(ks.size(), 0.0);
    r.dv.assign(vs.size(), 0.0);
    r.dsink.assign(p.sink ? std::size_t(p.heads) : 0, 0.0);
  }
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.heads; ++h)
      for (std::int64_t i = 0; i < p.len_q; ++i) {
        const auto kv = h / p.group();
        const auto row_at = (b * p.len_q + i) * p.heads + h, head_at = b * p.len_k * p.kv_heads + kv;
        const double* const q_row = qs.data() + row_at * dim;
        const double *k_head = nullptr, *v_head = nullptr;  // without keys
        if (p.len_k > 0) k_head = ks.data() + head_at * dim, v_head = vs.data() + head_at * dim_v;
        const double sink = p.sink ? double(with.sink.as<float>()[h]) : -std::numeric_limits<double>::infinity();
        const Row row = softmax_row(p, lists.band(b), sink, q_row, k_head, key_step, i, [&](std::int64_t j) {
          const Alibi::Spot spot = alibi.of_row(int(b), int(i));
          return double(alibi.slope(spot, int(h))) * std::abs(double(spot.place) - double(j));
        });
        const auto lse_at = std::size_t((b * p.heads + h) * p.len_q + i);
        r.lse[lse_at] = row.lse;
        double* o = r.o.data() + row_at * dim_v;
        const auto factor = [&](std::int64_t j) {  // dropout's, for a probability
          if (!dropping) return 1.0;
          const auto draw = dropping->draws.of_head(std::uint32_t(b * p.heads + h)).draw(std::uint32_t(i), std::uint32_t(j));
          return draw < dropping->dropout.below ? 0.0 : kept;
        };
        for (auto j = row.first; j < row.last; ++j)
          for (std::int64_t d = 0; d < dim_v; ++d) o[d] += row.p[std::size_t(j)] * factor(j) * v_head[j * value_step + d];
        if (!gradients) continue;
        const double* g_row = gs.data() + row_at * dim_v;
        double delta = dlse ? -double(dlse.as<float>()[lse_at]) : 0.0;  // Σ_d dO·O, less what arrives through LSE
        for (std::int64_t d = 0; d < dim_v; ++d) delta += g_row[d] * o[d];
        if (p.sink) r.dsink[std::size_t(h)] -= share_of_sink(sink, row.lse) * delta;
        double *dq = r.dq.data() + row_at * dim, *dk = nullptr, *dv = nullptr;
        if (p.len_k > 0) dk = r.dk.data() + head_at * dim, dv = r.dv.data() + head_at * dim_v;
        for (auto j = row.first; j < row.last; ++j) {
          const double prob = row.p[std::size_t(j)];
          double dp = 0;
          for (std::int64_t d = 0; d < dim_v; ++d) dp += g_row[d] * v_head[j * value_step + d];
          const double ds = prob * (factor(j) * dp - delta) * row.slope[std::size_t(j)] * p.scale_or_default();
          for (std::int64_t d = 0; d < dim; ++d) {
            dq[d] += ds * k_head[j * key_step + d];
            dk[j * key_step + d] += ds * q_row[d];
          }
          for (std::int64_t d = 0; d < dim_v; ++d) dv[j * value_step + d] += prob * factor(j) * g_row[d];
        }
      }
  return r;
}

}  // namespace headroom::attention
