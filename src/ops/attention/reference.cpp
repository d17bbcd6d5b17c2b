#include "ops/attention/reference.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/convert.h"

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

struct Row {  // one query row: its scores become probabilities
  std::vector<double> p;
  std::int64_t first = 0, last = 0;
  double lse = 0;
};

// q: the row; k: the key head's rows, `step` apart.
Row softmax_row(const Problem& p, const Band& band, const double* q, const double* k, std::int64_t step, std::int64_t i) {
  const double scale = p.scale_or_default();
  Row row{std::vector<double>(std::size_t(p.len_k), 0.0), band.first(i), band.last(i), -std::numeric_limits<double>::infinity()};
  double top = row.lse;
  for (auto j = row.first; j < row.last; ++j) {
    double dot = 0;
    for (std::int64_t d = 0; d < p.head_dim; ++d) dot += q[d] * k[j * step + d];
    row.p[std::size_t(j)] = dot * scale;
    top = std::max(top, dot * scale);
  }
  double sum = 0;
  for (auto j = row.first; j < row.last; ++j) sum += row.p[std::size_t(j)] = std::exp(row.p[std::size_t(j)] - top);
  for (auto j = row.first; j < row.last; ++j) row.p[std::size_t(j)] /= sum;
  if (row.first < row.last) row.lse = top + std::log(sum);
  return row;
}

}  // namespace

Reference reference(const Problem& p, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& d_o, const Tensor& dlse) {
  const Band band = p.band();
  const auto dim = p.head_dim;
  const auto q_at = [&](auto b, auto i, auto h) { return std::size_t(((b * p.len_q + i) * p.heads + h) * dim); };
  const auto k_at = [&](auto b, auto j, auto h) { return std::size_t(((b * p.len_k + j) * p.kv_heads + h) * dim); };
  const bool gradients = bool(d_o);
  const auto qs = widened(q), ks = widened(k), vs = widened(v), gs = gradients ? widened(d_o) : std::vector<double>();
  const auto step = p.kv_heads * dim;
  Reference r;
  r.o.assign(std::size_t(p.q_shape().count()), 0.0);
  r.lse.assign(std::size_t(p.lse_shape().count()), 0.0);
  if (gradients) {
    r.dq.assign(r.o.size(), 0.0);
    r.dk.assign(std::size_t(p.k_shape().count()), 0.0);
    r.dv = r.dk;
  }
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.heads; ++h)
      for (std::int64_t i = 0; i < p.len_q; ++i) {
        const auto kv = h / p.group();
        const double *q_row = &qs[q_at(b, i, h)], *k_head = ks.data() + k_at(b, 0, kv), *v_head = vs.data() + k_at(b, 0, kv);
        const Row row = softmax_row(p, band, q_row, k_head, step, i);
        const auto lse_at = std::size_t((b * p.heads + h) * p.len_q + i);
        r.lse[lse_at] = row.lse;
        double* o = &r.o[q_at(b, i, h)];
        for (auto j = row.first; j < row.last; ++j)
          for (std::int64_t d = 0; d < dim; ++d) o[d] += row.p[std::size_t(j)] * v_head[j * step + d];
        if (!gradients) continue;
        const double* g_row = &gs[q_at(b, i, h)];
        double delta = dlse ? -double(dlse.as<float>()[lse_at]) : 0.0;  // Σ_d dO·O, less what arrives through LSE
        for (std::int64_t d = 0; d < dim; ++d) delta += g_row[d] * o[d];
        for (auto j = row.first; j < row.last; ++j) {
          const double prob = row.p[std::size_t(j)];
          double dp = 0;
          for (std::int64_t d = 0; d < dim; ++d) dp += g_row[d] * v_head[j * step + d];
          const double ds = prob * (dp - delta) * p.scale_or_default();
          for (std::int64_t d = 0; d < dim; ++d) {
            r.dq[q_at(b, i, h) + std::size_t(d)] += ds * k_head[j * step + d];
            r.dk[k_at(b, j, kv) + std::size_t(d)] += ds * q_row[d];
            r.dv[k_at(b, j, kv) + std::size_t(d)] += prob * g_row[d];
          }
        }
      }
  return r;
}

}  // namespace headroom::attention
