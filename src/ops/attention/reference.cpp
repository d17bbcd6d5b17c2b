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

struct Row {  // one query row: its scores become probabilities
  std::vector<double> p;
  std::int64_t first = 0, last = 0;
  double lse = 0;
};

Row softmax_row(const Problem& p, const Band& band, const Tensor& q, const Tensor& k, std::int64_t b, std::int64_t h, std::int64_t i) {
  const double scale = p.scale_or_default();
  Row row{std::vector<double>(std::size_t(p.len_k), 0.0), band.first(i), band.last(i), -std::numeric_limits<double>::infinity()};
  double top = row.lse;
  for (auto j = row.first; j < row.last; ++j) {
    double dot = 0;
    for (std::int64_t d = 0; d < p.head_dim; ++d) dot += load(q, b, i, h, d) * load(k, b, j, h / p.group(), d);
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
        const Row row = softmax_row(p, band, q, k, b, h, i);
        const auto lse_at = std::size_t((b * p.heads + h) * p.len_q + i);
        r.lse[lse_at] = row.lse;
        double* o = &r.o[q_at(b, i, h)];
        for (auto j = row.first; j < row.last; ++j)
          for (std::int64_t d = 0; d < dim; ++d) o[d] += row.p[std::size_t(j)] * load(v, b, j, kv, d);
        if (!gradients) continue;
        double delta = dlse ? -double(dlse.as<float>()[lse_at]) : 0.0;  // Σ_d dO·O, less what arrives through LSE
        for (std::int64_t d = 0; d < dim; ++d) delta += load(d_o, b, i, h, d) * o[d];
        for (auto j = row.first; j < row.last; ++j) {
          const double prob = row.p[std::size_t(j)];
          double dp = 0;
          for (std::int64_t d = 0; d < dim; ++d) dp += load(d_o, b, i, h, d) * load(v, b, j, kv, d);
          const double ds = prob * (dp - delta) * p.scale_or_default();
          for (std::int64_t d = 0; d < dim; ++d) {
            r.dq[q_at(b, i, h) + std::size_t(d)] += ds * load(k, b, j, kv, d);
            r.dk[k_at(b, j, kv) + std::size_t(d)] += ds * load(q, b, i, h, d);
            r.dv[k_at(b, j, kv) + std::size_t(d)] += prob * load(d_o, b, i, h, d);
          }
        }
      }
  return r;
}

}  // namespace headroom::attention
