// Honest kernels in FP32 for tests: S, softmax, products, one loop each, sums from left to right. What rounding costs at a precision.
// rounds_p: P and dS enter their products in the storage type, as a matrix unit of 16 bits needs them. In tf32 every factor is rounded.
#pragma once
#include <algorithm>
#include <future>
#include <limits>

#include "tests/attention_tensors.h"

namespace headroom::attention::cases {

// How P is rounded before it meets V. Normalised: divided by its sum first, and the rounded P serves the backward too (naive attention).
// Otherwise: exp(s - maximum) · 2^shift is rounded and the division comes last, with the sum of what was not rounded; the backward forms P
// anew from LSE (flash attention; the shift is how far an online softmax's reference may lag).
struct Rounding {
  bool normalised = true;
  float shift = 0;
};

struct Textbook {
  std::vector<double> o, lse, dq, dk, dv;
  double size_o = 0, size_dq = 0, size_dk = 0, size_dv = 0, size_s = 0;  // largest sum of absolute terms: what cancels is measured by it
  // Backward is handed O as it was stored, and Δ is formed from it: an error of one unit in every O, with signs as they fall (root of squares),
  // moves dQ and dK by up to this many units, whatever the kernel.
  double stored_o_dq = 0, stored_o_dk = 0;
};

inline Textbook textbook(const Case& c, Tensors& x, bool rounds_p, Rounding how = {}) {
  const Problem& p = c.problem;
  const Band band = p.band();
  const auto dim = p.head_dim;
  const float scale = p.scale_or_default();
  const bool tf32 = p.precision.math == Math::tf32;
  const auto factors = [&](Guarded& g) {
    auto all = g.values();
    if (tf32)
      for (double& one : all) one = round_to_tf32(float(one));
    return all;
  };
  const auto q = factors(x.q), k = factors(x.k), v = factors(x.v), d_o = factors(x.d_o), dlse = x.dlse.values();
  const auto whole_d_o = x.d_o.values();  // Δ is no product of matrices
  const auto stored = [&](float value) { return with_float(p.precision.dtype, [&]<class T>() { return widen(narrow<T>(value)); }); };
  const auto factor = [&](float value) { return tf32 ? round_to_tf32(value) : rounds_p ? stored(value) : value; };
  const auto at = [&](std::int64_t b, std::int64_t row, std::int64_t h, std::int64_t len, std::int64_t heads) {
    return std::size_t(((b * len + row) * heads + h) * dim);
  };
  Textbook r;
  r.o.assign(q.size(), 0), r.dq.assign(q.size(), 0), r.dk.assign(k.size(), 0), r.dv.assign(k.size(), 0);
  r.lse.assign(std::size_t(p.lse_shape().count()), -std::numeric_limits<double>::infinity());
  std::vector<float> dk(k.size(), 0.0f), dv(k.size(), 0.0f);
  std::vector<double> size_dk(k.size(), 0.0), size_dv(k.size(), 0.0), spread_dk(k.size(), 0.0);
  std::vector<float> s(std::size_t(p.len_k)), o(static_cast<std::size_t>(dim)), dq(static_cast<std::size_t>(dim));
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.heads; ++h)
      for (std::int64_t i = 0; i < p.len_q; ++i) {
        const auto kv = h / p.group(), first = band.first(i), last = band.last(i);
        if (first >= last) continue;
        const double *qi = &q[at(b, i, h, p.len_q, p.heads)], *gi = &d_o[at(b, i, h, p.len_q, p.heads)];
        float top = -std::numeric_limits<float>::infinity(), sum = 0;
        for (auto j = first; j < last; ++j) {
          const double* kj = &k[at(b, j, kv, p.len_k, p.kv_heads)];
          float dot = 0;
          double size = 0;
          for (std::int64_t d = 0; d < dim; ++d) dot += float(qi[d]) * float(kj[d]), size += std::abs(qi[d] * kj[d]);
          top = std::max(top, s[std::size_t(j)] = dot * scale);
          r.size_s = std::max(r.size_s, size * std::abs(scale));
        }
        for (auto j = first; j < last; ++j) sum += s[std::size_t(j)] = std::exp(s[std::size_t(j)] - top);
        const float raise = std::exp2(how.shift);
        std::fill(o.begin(), o.end(), 0.0f), std::fill(dq.begin(), dq.end(), 0.0f);
        std::vector<double> size_o(static_cast<std::size_t>(dim), 0.0), size_dq(static_cast<std::size_t>(dim), 0.0);
        for (auto j = first; j < last; ++j) {
          float& prob = s[std::size_t(j)];
          const float weight = how.normalised ? prob = factor(prob / sum) : factor(prob * raise) / (sum * raise);
          if (!how.normalised) prob /= sum;
          const double* vj = &v[at(b, j, kv, p.len_k, p.kv_heads)];
          for (std::size_t d = 0; d < std::size_t(dim); ++d) o[d] += weight * float(vj[d]), size_o[d] += weight * std::abs(vj[d]);
        }
        const auto row = std::size_t((b * p.heads + h) * p.len_q + i);
        r.lse[row] = top + std::log(sum);
        float delta = c.with_dlse ? -float(dlse[row]) : 0.0f;
        double size_delta = std::abs(delta), spread = 0;
        for (std::size_t d = 0; d < std::size_t(dim); ++d) {
          r.o[at(b, i, h, p.len_q, p.heads) + d] = stored(o[d]);
          delta += float(whole_d_o[at(b, i, h, p.len_q, p.heads) + d]) * stored(o[d]), size_delta += std::abs(gi[d] * double(o[d]));
          r.size_o = std::max(r.size_o, size_o[d]);
          spread += gi[d] * gi[d] * double(o[d]) * double(o[d]);
        }
        spread = std::abs(scale) * std::sqrt(spread);
        std::vector<double> spread_dq(static_cast<std::size_t>(dim), 0.0);
        for (auto j = first; j < last; ++j) {
          const double *vj = &v[at(b, j, kv, p.len_k, p.kv_heads)], *kj = &k[at(b, j, kv, p.len_k, p.kv_heads)];
          const float prob = s[std::size_t(j)], weight = factor(prob);
          float dp = 0;
          double size_dp = 0;
          for (std::int64_t d = 0; d < dim; ++d) dp += float(gi[d]) * float(vj[d]), size_dp += std::abs(gi[d] * vj[d]);
          const float ds = scale * factor(prob * (dp - delta));
          const double size_ds = std::abs(scale) * double(prob) * (size_dp + size_delta);
          const auto key = at(b, j, kv, p.len_k, p.kv_heads);
          for (std::size_t d = 0; d < std::size_t(dim); ++d) {
            dq[d] += ds * float(kj[d]), size_dq[d] += size_ds * std::abs(kj[d]);
            dk[key + d] += ds * float(qi[d]), size_dk[key + d] += size_ds * std::abs(qi[d]);
            spread_dq[d] += spread * double(prob) * kj[d], spread_dk[key + d] += std::pow(spread * double(prob) * qi[d], 2);
            dv[key + d] += weight * float(gi[d]), size_dv[key + d] += double(prob) * std::abs(gi[d]);
          }
        }
        for (std::size_t d = 0; d < std::size_t(dim); ++d) {
          r.dq[at(b, i, h, p.len_q, p.heads) + d] = stored(dq[d]);
          r.size_dq = std::max(r.size_dq, size_dq[d]), r.stored_o_dq = std::max(r.stored_o_dq, std::abs(spread_dq[d]));
        }
      }
  for (std::size_t i = 0; i < dk.size(); ++i) {
    r.dk[i] = stored(dk[i]), r.dv[i] = stored(dv[i]);
    r.size_dk = std::max(r.size_dk, size_dk[i]), r.size_dv = std::max(r.size_dv, size_dv[i]);
    r.stored_o_dk = std::max(r.stored_o_dk, std::sqrt(spread_dk[i]));
  }
  return r;
}

// The honest kernels of a case, each on a thread of its own: where nothing is rounded on the way they are one.
inline std::vector<Textbook> textbooks(const Case& c, Tensors& x, bool rounds_p) {
  std::vector<std::future<Textbook>> working;
  const auto start = [&](Rounding how) {
    working.push_back(std::async(std::launch::async, [&c, &x, rounds_p, how] { return textbook(c, x, rounds_p, how); }));
  };
  start({});
  if (rounds_p && c.problem.precision != Precision{DType::f32, Math::exact})
    for (float shift : {0.0f, 1.7f, 3.1f}) start({false, shift});
  std::vector<Textbook> all;
  for (auto& one : working) all.push_back(one.get());
  return all;
}

}  // namespace headroom::attention::cases
