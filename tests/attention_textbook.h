// Honest kernels in FP32 for tests: S, softmax, products, one loop each, sums from left to right. What rounding costs at a precision.
// rounds_p: P and dS enter their products in the storage type, as a matrix unit of 16 bits needs them. In tf32 every factor is rounded.
#pragma once
#include <algorithm>
#include <future>
#include <limits>

#include "ops/attention/alibi.h"
#include "ops/attention/documents/documents.h"
#include "ops/attention/dropout.h"
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
  std::vector<double> o, lse, dq, dk, dv, dsink;
  // largest sum of absolute terms: what cancels is measured by it
  double size_o = 0, size_dq = 0, size_dk = 0, size_dv = 0, size_s = 0, size_dsink = 0;
  // Backward is handed O as it was stored, and Δ is formed from it: an error of one unit in every O, with signs as they fall (root of squares),
  // moves dQ and dK by up to this many units, whatever the kernel.
  double stored_o_dq = 0, stored_o_dk = 0;
};

// Keys or values as [batch, len_k, kv_heads, dim], wherever their pages lie.
inline std::vector<double> keys_of(const Problem& p, Guarded& g, Tensors& x) {
  const auto all = g.values();
  if (p.page == 0) return all;
  const auto dim = g.view().shape[3];
  std::vector<double> out(std::size_t(p.batch * p.len_k * p.kv_heads * dim));
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t j = 0; j < p.len_k; ++j) {
      const std::int64_t page = x.pages.view().as<std::int32_t>()[b * p.pages_of_sequence() + j / p.page];
      std::copy_n(all.begin() + (page * p.page + j % p.page) * p.kv_heads * dim, p.kv_heads * dim,
                  out.begin() + (b * p.len_k + j) * p.kv_heads * dim);
    }
  return out;
}

// sized: with the sums of absolute terms, which are the same however P is rounded.
template <bool sized = true>
Textbook textbook(const Case& c, Tensors& x, bool rounds_p, Rounding how = {}) {
  const Problem& p = c.problem;
  const HostLists lists(p, extras_of(x));
  const auto dropping = dropping_of(p, extras_of(x));
  const Alibi alibi = alibi_of(p, extras_of(x));
  const auto dim = p.head_dim, dim_v = p.value_dim();
  const float scale = p.scale_or_default(), nothing = -std::numeric_limits<float>::infinity();
  const bool tf32 = p.precision.math == Math::tf32;
  const auto factors = [&](std::vector<double> all) {
    if (tf32)
      for (double& one : all) one = round_to_tf32(float(one));
    return all;
  };
  const auto q = factors(x.q.values()), k = factors(keys_of(p, x.k, x)), v = factors(keys_of(p, x.v, x)), d_o = factors(x.d_o.values()),
             dlse = x.dlse.values();
  const auto whole_d_o = x.d_o.values();  // Δ is no product of matrices
  const auto stored = [&](float value) { return with_float(p.precision.dtype, [&]<class T>() { return widen(narrow<T>(value)); }); };
  const auto factor = [&](float value) { return tf32 ? round_to_tf32(value) : rounds_p ? stored(value) : value; };
  Textbook r;
  r.o.assign(d_o.size(), 0);
  r.dq.assign(q.size(), 0);
  r.dk.assign(k.size(), 0);
  r.dv.assign(v.size(), 0);
  r.dsink.assign(p.sink ? std::size_t(p.heads) : 0, 0);
  r.lse.assign(std::size_t(p.lse_shape().count()), nothing);
  std::vector<float> dk(k.size(), 0.0f), dv(v.size(), 0.0f);
  std::vector<double> size_dk(k.size(), 0.0), size_dv(v.size(), 0.0), spread_dk(k.size(), 0.0);
  std::vector<double> size_dsink(r.dsink.size(), 0.0);
  const auto keys = std::size_t(p.len_k), width = static_cast<std::size_t>(dim), width_v = static_cast<std::size_t>(dim_v);
  std::vector<float> s(keys), slope(keys), o(width_v), dq(width), dsink(r.dsink.size(), 0.0f);
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.heads; ++h)
      for (std::int64_t i = 0; i < p.len_q; ++i) {
        const Band band = lists.band(b);
        const auto kv = h / p.group(), first = band.first(i), last = band.last(i);
        const auto row = std::size_t((b * p.heads + h) * p.len_q + i), row_at = std::size_t((b * p.len_q + i) * p.heads + h);
        const auto key_at = [&](std::int64_t j) { return std::size_t((b * p.len_k + j) * p.kv_heads + kv); };
        const auto kept = [&](std::int64_t j) { return factor_of(dropping, b * p.heads + h, i, j); };
        const float sink = p.sink ? x.sink.view().as<float>()[h] : nothing;
        if (first >= last) {
          r.lse[row] = sink;
          if (p.sink && !std::isinf(sink) && c.with_dlse) {
            dsink[std::size_t(h)] += float(dlse[row]);
            size_dsink[std::size_t(h)] += std::abs(dlse[row]);
          }
          continue;
        }
        const double *qi = &q[row_at * width], *gi = &d_o[row_at * width_v];
        float top = nothing, sum = 0;
        for (auto j = first; j < last; ++j) {
          const double* kj = &k[key_at(j) * width];
          float dot = 0;
          double size = 0;
          for (std::int64_t d = 0; d < dim; ++d) {
            dot += float(qi[d]) * float(kj[d]);
            if constexpr (sized) size += std::abs(qi[d] * kj[d]);
          }
          float score = dot * scale;
          slope[std::size_t(j)] = 1;
          if (p.softcap != 0) {
            const float t = std::tanh(score / p.softcap);
            score = p.softcap * t;
            slope[std::size_t(j)] = (1 - t) * (1 + t);
          }
          const float fall = alibi.fall(b, h, i, j);
          top = std::max(top, s[std::size_t(j)] = score - fall);
          r.size_s = std::max(r.size_s, size * std::abs(scale) + double(fall));
        }
        top = std::max(top, sink);
        if (std::isinf(top)) {  // the sink takes all
          r.lse[row] = top;
          if (c.with_dlse) {
            dsink[std::size_t(h)] += float(dlse[row]);
            size_dsink[std::size_t(h)] += std::abs(dlse[row]);
          }
          continue;
        }
        for (auto j = first; j < last; ++j) sum += s[std::size_t(j)] = std::exp(s[std::size_t(j)] - top);
        if (p.sink) sum += std::exp(sink - top);
        const float raise = std::exp2(how.shift);
        std::fill(o.begin(), o.end(), 0.0f);
        std::fill(dq.begin(), dq.end(), 0.0f);
        std::vector<double> size_o(width_v, 0.0), size_dq(width, 0.0);
        for (auto j = first; j < last; ++j) {
          float& prob = s[std::size_t(j)];
          const float weight = how.normalised ? prob = factor(prob / sum) : factor(prob * raise) / (sum * raise);
          if (!how.normalised) prob /= sum;
          const double* vj = &v[key_at(j) * width_v];
          const float kept_j = kept(j);
          for (std::size_t d = 0; d < width_v; ++d) {
            o[d] += weight * kept_j * float(vj[d]);
            if constexpr (sized) size_o[d] += weight * kept_j * std::abs(vj[d]);
          }
        }
        r.lse[row] = top + std::log(sum);
        float delta = c.with_dlse ? -float(dlse[row]) : 0.0f;
        double size_delta = std::abs(delta), spread = 0;
        for (std::size_t d = 0; d < width_v; ++d) {
          r.o[row_at * width_v + d] = stored(o[d]);
          delta += float(whole_d_o[row_at * width_v + d]) * stored(o[d]);
          size_delta += std::abs(gi[d] * double(o[d]));
          r.size_o = std::max(r.size_o, size_o[d]);
          spread += gi[d] * gi[d] * double(o[d]) * double(o[d]);
        }
        if (c.last == Pass::forward) continue;
        if (p.sink) {
          const float share = std::exp(sink - float(r.lse[row]));
          dsink[std::size_t(h)] -= share * delta;
          size_dsink[std::size_t(h)] += double(share) * size_delta;
        }
        spread = std::abs(scale) * std::sqrt(spread);
        std::vector<double> spread_dq(width, 0.0);
        for (auto j = first; j < last; ++j) {
          const double *vj = &v[key_at(j) * width_v], *kj = &k[key_at(j) * width];
          const float prob = s[std::size_t(j)], weight = factor(prob), ramp = slope[std::size_t(j)], kept_j = kept(j);
          float dp = 0;
          double size_dp = 0;
          for (std::int64_t d = 0; d < dim_v; ++d) {
            dp += float(gi[d]) * float(vj[d]);
            if constexpr (sized) size_dp += std::abs(gi[d] * vj[d]);
          }
          const float ds = scale * factor(prob * (kept_j * dp - delta) * ramp);
          const double size_ds = std::abs(scale) * double(prob) * (double(kept_j) * size_dp + size_delta);
          for (std::size_t d = 0; d < width; ++d) {
            const std::size_t key = key_at(j) * width + d;
            dq[d] += ds * float(kj[d]);
            dk[key] += ds * float(qi[d]);
            if constexpr (sized) {
              size_dq[d] += size_ds * std::abs(kj[d]);
              size_dk[key] += size_ds * std::abs(qi[d]);
              spread_dq[d] += spread * double(prob) * kj[d];
              spread_dk[key] += std::pow(spread * double(prob) * qi[d], 2);
            }
          }
          for (std::size_t d = 0; d < width_v; ++d) {
            dv[key_at(j) * width_v + d] += weight * kept_j * float(gi[d]);
            if constexpr (sized) size_dv[key_at(j) * width_v + d] += double(prob * kept_j) * std::abs(gi[d]);
          }
        }
        for (std::size_t d = 0; d < width; ++d) {
          r.dq[row_at * width + d] = stored(dq[d]);
          r.size_dq = std::max(r.size_dq, size_dq[d]);
          r.stored_o_dq = std::max(r.stored_o_dq, std::abs(spread_dq[d]));
        }
      }
  for (std::size_t i = 0; i < dk.size(); ++i) {
    r.dk[i] = stored(dk[i]);
    r.size_dk = std::max(r.size_dk, size_dk[i]);
    r.stored_o_dk = std::max(r.stored_o_dk, std::sqrt(spread_dk[i]));
  }
  for (std::size_t i = 0; i < dv.size(); ++i) {
    r.dv[i] = stored(dv[i]);
    r.size_dv = std::max(r.size_dv, size_dv[i]);
  }
  for (std::size_t h = 0; h < dsink.size(); ++h) {
    r.dsink[h] = dsink[h];
    r.size_dsink = std::max(r.size_dsink, size_dsink[h]);
  }
  return r;
}

// The honest kernels of a case, each on a thread of its own: where nothing is rounded on the way they are one. The first knows its sizes.
inline std::vector<Textbook> textbooks(const Case& c, Tensors& x, bool rounds_p) {
  std::vector<std::future<Textbook>> working;
  working.push_back(std::async(std::launch::async, [&] { return textbook(c, x, rounds_p); }));
  if (rounds_p && c.problem.precision != Precision{DType::f32, Math::exact})
    for (const float shift : {0.0f, 1.7f, 3.1f})
      working.push_back(std::async(std::launch::async, [&c, &x, shift] { return textbook<false>(c, x, true, {false, shift}); }));
  std::vector<Textbook> all;
  for (auto& one : working) all.push_back(one.get());
  return all;
}

}  // namespace headroom::attention::cases
