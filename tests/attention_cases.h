// What every attention variant is asked in tests, on any device: problems, inputs of several characters, memory with guard bands, and
// the measure of an honest error. A suite makes a Case, fills Inputs, runs its variant on views of Guarded memory, calls judge.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/convert.h"
#include "base/random.h"
#include "ops/attention/attention.h"
#include "ops/attention/reference.h"

namespace headroom::attention::cases {

enum class Layout { rows, heads_first, padded };              // [b, len, h, d] · memory of [b, h, len, d] · gaps between rows and batches
enum class Values { normal, one_hot, far_above, far_below };  // one_hot: a key takes all; far: scores around ±300

struct Case {
  Problem problem;
  Layout layout = Layout::rows;
  Values values = Values::normal;
  bool with_dlse = false;
  std::uint64_t seed = 1;
};

inline std::string in_words(const Case& c) {
  constexpr const char* layouts[] = {"rows", "heads_first", "padded"};
  constexpr const char* values[] = {"normal", "one_hot", "far_above", "far_below"};
  const Problem& p = c.problem;
  return fmt::format("{} batch {} heads {}/{} len {}x{} dim {} {} scale {} {} {} dlse {} seed {}", name_of(p.precision), p.batch, p.heads,
                     p.kv_heads, p.len_q, p.len_k, p.head_dim, name_of(p.mask), p.scale, layouts[int(c.layout)], values[int(c.values)],
                     c.with_dlse, c.seed);
}

// A tensor with its own memory, every byte of it 0xff (a NaN in every format) until written; guard bands before, behind and in the gaps.
class Guarded {
 public:
  Guarded() = default;
  Guarded(DType dtype, Shape shape, Layout layout = Layout::rows) : view_(nullptr, dtype, shape) {
    if (layout == Layout::heads_first && shape.rank == 4) view_.stride = {shape[1] * shape[2] * shape[3], shape[3], shape[1] * shape[3], 1};
    if (layout == Layout::padded && shape.rank == 4) {
      const auto head = shape[3] + 5, row = shape[2] * head + 3;
      view_.stride = {shape[1] * row + 7, row, head, 1};
    }
    std::int64_t end = shape.count() == 0 ? 0 : 1;
    for (int d = 0; d < shape.rank && end; ++d) end += (shape[d] - 1) * view_.stride[std::size_t(d)];
    bytes_.assign((std::size_t(end) + 2 * band) * size_of(dtype), std::byte{0xff});
  }
  Tensor view() { return at(bytes_.data()); }
  Tensor at(void* base) const {  // the same view in a copy of the bytes, on any device
    Tensor t = view_;
    t.data = static_cast<std::byte*>(base) + band * size_of(t.dtype);
    return t;
  }
  std::vector<std::byte>& bytes() { return bytes_; }

  template <class F>
  void each(F&& f) {  // f(flat index, offset in elements)
    const Shape& s = view_.shape;
    std::int64_t flat = 0;
    for (std::int64_t a = 0; a < s[0]; ++a)
      for (std::int64_t b = 0; b < s[1]; ++b)
        for (std::int64_t c = 0; c < s[2]; ++c)
          for (std::int64_t d = 0; d < s[3]; ++d, ++flat)
            f(flat, a * view_.stride[0] + b * view_.stride[1] + c * view_.stride[2] + d * view_.stride[3]);
  }
  void set(std::int64_t offset, float x) {
    with_float(view_.dtype, [&]<class T>() { view().as<T>()[offset] = narrow<T>(x); });
  }
  std::vector<double> values() {
    std::vector<double> out(std::size_t(view_.count()));
    each([&](std::int64_t flat, std::int64_t offset) { out[std::size_t(flat)] = load_element(view().data, view_.dtype, offset); });
    return out;
  }
  bool guards_intact() {  // every byte that is no element is still 0xff
    const auto size = size_of(view_.dtype);
    std::vector<bool> element(bytes_.size(), false);
    each([&](std::int64_t, std::int64_t offset) {
      for (std::size_t i = 0; i < size; ++i) element[(std::size_t(offset) + band) * size + i] = true;
    });
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      if (!element[i] && bytes_[i] != std::byte{0xff}) return false;
    return true;
  }

 private:
  static constexpr std::size_t band = 64;  // elements
  Tensor view_;
  std::vector<std::byte> bytes_;
};

struct Tensors {  // of one case; outputs are poisoned
  Guarded q, k, v, d_o, dlse, o, lse, dq, dk, dv;
};

inline Tensors tensors_of(const Case& c) {
  const Problem& p = c.problem;
  const DType t = p.precision.dtype;
  const auto make = [&](const Shape& s) { return Guarded(t, s, c.layout); };
  Tensors x{make(p.q_shape()),
            make(p.k_shape()),
            make(p.k_shape()),
            make(p.q_shape()),
            Guarded(DType::f32, p.lse_shape()),
            make(p.q_shape()),
            Guarded(DType::f32, p.lse_shape()),
            make(p.q_shape()),
            make(p.k_shape()),
            make(p.k_shape())};
  const Random random{c.seed};
  const auto fill = [&](Guarded& g, std::uint64_t stream, float factor, float first) {
    const Random r = random.stream(stream);
    g.each([&](std::int64_t flat, std::int64_t offset) {
      g.set(offset, flat % p.head_dim == 0 && first != 0 ? first : factor * r.normal(std::uint64_t(flat)));
    });
  };
  const float shift = std::sqrt(300.0f / p.scale_or_default());  // the first dimension alone moves every score by ±300
  const bool far = c.values == Values::far_above || c.values == Values::far_below;
  fill(x.q, 1, c.values == Values::one_hot ? 12.0f : 1.0f, far ? shift : 0);
  fill(x.k, 2, c.values == Values::one_hot ? 4.0f : 1.0f, !far ? 0 : c.values == Values::far_above ? shift : -shift);
  fill(x.v, 3, 1, 0);
  fill(x.d_o, 4, 1, 0);
  const Random r = random.stream(5);
  x.dlse.each([&](std::int64_t flat, std::int64_t offset) { x.dlse.set(offset, r.normal(std::uint64_t(flat))); });
  return x;
}

// The textbook in FP32: S, softmax, products, one loop each, sums from left to right. What an honest kernel's rounding costs.
// rounds_p: P and dS enter their products in the storage type, as a matrix unit of 16 bits needs them. In tf32 every factor is rounded.
struct Textbook {
  std::vector<double> o, lse, dq, dk, dv;
  double size_o = 0, size_dq = 0, size_dk = 0, size_dv = 0, size_s = 0;  // largest sum of absolute terms: what cancels is measured by it
};

inline Textbook textbook(const Case& c, Tensors& x, bool rounds_p) {
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
  std::vector<double> size_dk(k.size(), 0.0), size_dv(k.size(), 0.0);
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
        std::fill(o.begin(), o.end(), 0.0f), std::fill(dq.begin(), dq.end(), 0.0f);
        std::vector<double> size_o(static_cast<std::size_t>(dim), 0.0), size_dq(static_cast<std::size_t>(dim), 0.0);
        for (auto j = first; j < last; ++j) {
          float& prob = s[std::size_t(j)];
          prob = factor(prob / sum);
          const double* vj = &v[at(b, j, kv, p.len_k, p.kv_heads)];
          for (std::size_t d = 0; d < std::size_t(dim); ++d) o[d] += prob * float(vj[d]), size_o[d] += prob * std::abs(vj[d]);
        }
        const auto row = std::size_t((b * p.heads + h) * p.len_q + i);
        r.lse[row] = top + std::log(sum);
        float delta = c.with_dlse ? -float(dlse[row]) : 0.0f;
        double size_delta = std::abs(delta);
        for (std::size_t d = 0; d < std::size_t(dim); ++d) {
          r.o[at(b, i, h, p.len_q, p.heads) + d] = stored(o[d]);
          delta += float(whole_d_o[at(b, i, h, p.len_q, p.heads) + d]) * stored(o[d]), size_delta += std::abs(gi[d] * double(o[d]));
          r.size_o = std::max(r.size_o, size_o[d]);
        }
        for (auto j = first; j < last; ++j) {
          const double *vj = &v[at(b, j, kv, p.len_k, p.kv_heads)], *kj = &k[at(b, j, kv, p.len_k, p.kv_heads)];
          const float prob = s[std::size_t(j)];
          float dp = 0;
          double size_dp = 0;
          for (std::int64_t d = 0; d < dim; ++d) dp += float(gi[d]) * float(vj[d]), size_dp += std::abs(gi[d] * vj[d]);
          const float ds = scale * factor(prob * (dp - delta));
          const double size_ds = std::abs(scale) * double(prob) * (size_dp + size_delta);
          const auto key = at(b, j, kv, p.len_k, p.kv_heads);
          for (std::size_t d = 0; d < std::size_t(dim); ++d) {
            dq[d] += ds * float(kj[d]), size_dq[d] += size_ds * std::abs(kj[d]);
            dk[key + d] += ds * float(qi[d]), size_dk[key + d] += size_ds * std::abs(qi[d]);
            dv[key + d] += prob * float(gi[d]), size_dv[key + d] += double(prob) * std::abs(gi[d]);
          }
        }
        for (std::size_t d = 0; d < std::size_t(dim); ++d) {
          r.dq[at(b, i, h, p.len_q, p.heads) + d] = stored(dq[d]);
          r.size_dq = std::max(r.size_dq, size_dq[d]);
        }
      }
  for (std::size_t i = 0; i < dk.size(); ++i) {
    r.dk[i] = stored(dk[i]), r.dv[i] = stored(dv[i]);
    r.size_dk = std::max(r.size_dk, size_dk[i]), r.size_dv = std::max(r.size_dv, size_dv[i]);
  }
  return r;
}

inline double largest_error(const std::vector<double>& got, const std::vector<double>& expected) {  // ∞ for a NaN or a wrong infinity
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i]) continue;
    const double e = std::abs(got[i] - expected[i]);
    worst = std::isfinite(e) ? std::max(worst, e) : std::numeric_limits<double>::infinity();
  }
  return worst;
}

// error ≤ 2 × the textbook's + a few units in the last place of what was summed (FP32) and of what was stored.
inline void expect_within(const char* name, const Case& c, const std::vector<double>& got, const std::vector<double>& expected,
                          const std::vector<double>& textbook, double summed, double stored_unit) {
  double largest = 0;
  for (double e : expected)
    if (std::isfinite(e)) largest = std::max(largest, std::abs(e));
  const double budget = 2 * largest_error(textbook, expected) + 8 * 0x1p-24 * summed + 2 * stored_unit * largest + 1e-30;
  EXPECT_LE(largest_error(got, expected), budget)
      << name << " of " << in_words(c) << "; the textbook's error is " << largest_error(textbook, expected);
}

struct Expected {  // of one case's inputs, whoever computes it
  Reference exact;
  Textbook honest;
};
inline Expected expected_of(const Case& c, Tensors& x, bool rounds_p) {
  return {reference(c.problem, x.q.view(), x.k.view(), x.v.view(), x.d_o.view(), c.with_dlse ? x.dlse.view() : Tensor()),
          textbook(c, x, rounds_p)};
}

// Everything a finished run must satisfy.
inline void judge(const Case& c, Tensors& x, const Expected& expected, bool gradients = true) {
  const Problem& p = c.problem;
  const auto& [exact, honest] = expected;
  const double unit = p.precision.math == Math::tf32     ? 0x1p-12  // as if results were stored in it
                      : p.precision.dtype == DType::f32  ? 0x1p-24
                      : p.precision.dtype == DType::bf16 ? 0x1p-9
                                                         : 0x1p-12;
  const double amplified = 1 + 0.5 * honest.size_s;  // an error of one unit in a score moves its probability by that much
  expect_within("o", c, x.o.values(), exact.o, honest.o, honest.size_o * amplified, unit);
  expect_within("lse", c, x.lse.values(), exact.lse, honest.lse, amplified, 0x1p-24);
  if (gradients) {
    expect_within("dq", c, x.dq.values(), exact.dq, honest.dq, honest.size_dq * amplified, unit);
    expect_within("dk", c, x.dk.values(), exact.dk, honest.dk, honest.size_dk * amplified, unit);
    expect_within("dv", c, x.dv.values(), exact.dv, honest.dv, honest.size_dv * amplified, unit);
  }
  for (Guarded* g : {&x.q, &x.k, &x.v, &x.d_o, &x.dlse, &x.o, &x.lse, &x.dq, &x.dk, &x.dv})
    EXPECT_TRUE(g->guards_intact()) << "a guard band was written: " << in_words(c);
}

inline void judge(const Case& c, Tensors& x, bool rounds_p) { judge(c, x, expected_of(c, x, rounds_p)); }

// A configuration from a number: mostly small, every feature with some probability.
inline Case random_case(std::uint64_t seed) {
  const Random r{seed};
  std::uint64_t n = 0;
  const auto below = [&](std::uint64_t limit) { return std::int64_t(r.below(n++, limit)); };
  const auto length = [&]() -> std::int64_t {
    const auto kind = below(10);
    return kind == 0 ? below(2) : kind < 8 ? 1 + below(40) : 1 + below(150);
  };
  Case c;
  Problem& p = c.problem;
  p.batch = 1 + below(2);
  p.kv_heads = 1 + below(2);
  p.heads = p.kv_heads * (1 + below(3));
  p.len_q = length();
  p.len_k = below(3) == 0 ? p.len_q : length();
  p.head_dim = below(12) == 0 ? 1 + below(256) : 1 + below(40);
  switch (below(5)) {
    case 0: p.mask = Mask::causal(); break;
    case 1: p.mask = Mask::causal(Align::top_left); break;
    case 2: p.mask = Mask::sliding(1 + below(50)); break;
    case 3: p.mask = Mask::sliding(1 + below(50), Align::top_left); break;
    default: break;
  }
  constexpr DType dtypes[] = {DType::f32, DType::f32, DType::bf16, DType::f16};
  p.precision.dtype = dtypes[below(4)];
  if (below(4) == 0) p.scale = 0.1f + 0.1f * float(below(10));
  c.layout = Layout(below(3));
  c.values = below(2) ? Values::normal : Values(below(4));
  if (p.precision.dtype == DType::f16 && c.values != Values::one_hot) c.values = Values::normal;  // ±300 needs more bits than fp16 has
  c.with_dlse = below(2) == 0;
  c.seed = seed;
  return c;
}

}  // namespace headroom::attention::cases
