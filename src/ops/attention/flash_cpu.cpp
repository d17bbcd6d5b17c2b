// flash — no N² memory: each query row streams over its keys with an online softmax; backward recomputes P from LSE.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/convert.h"
#include "ops/attention/impl.h"

namespace headroom::attention {

namespace {

template <class T>
T* row_of(const Tensor& t, std::int64_t b, std::int64_t row, std::int64_t head) {
  return t.as<T>() + b * t.stride[0] + row * t.stride[1] + head * t.stride[2];
}

template <class T>
float dot(const T* a, const T* b, std::int64_t n) {
  float sum = 0;
  for (std::int64_t d = 0; d < n; ++d) sum += widen(a[d]) * widen(b[d]);
  return sum;
}

}  // namespace

Support flash_supports(const Problem& p, const Device& device, Pass pass) { return plain_supports(p, device, pass); }

void flash_forward(const Problem& p, const Forward& t, Context& ctx) {
  const Tensor sums = ctx.arena.make("o", DType::f32, {ctx.workers(), p.head_dim});
  ctx.note("attention.flash.forward", p.precision, {forward_flops(p), double(2 * t.q.bytes() + 2 * t.k.bytes() + t.lse.bytes())});
  if (ctx.dry()) return;
  with_float(p.precision.dtype, [&]<class T>() {
    const Band band = p.band();
    ctx.share(p.lse_shape().count(), [&](std::int64_t at, int worker) {
      const auto row = at % p.len_q, h = at / p.len_q % p.heads, b = at / (p.len_q * p.heads), kv = h / p.group();
      float *o = sums.as<float>() + worker * p.head_dim, top = -std::numeric_limits<float>::infinity(), sum = 0;
      std::fill(o, o + p.head_dim, 0.0f);
      for (auto j = band.first(row); j < band.last(row); ++j) {
        const float s = p.scale_or_default() * dot(row_of<T>(t.q, b, row, h), row_of<T>(t.k, b, j, kv), p.head_dim);
        if (!(s <= top)) {
          const float fix = sum == 0 ? 0 : std::exp(top - s);
          for (std::int64_t d = 0; d < p.head_dim; ++d) o[d] *= fix;
          sum *= fix, top = s;
        }
        const float e = std::exp(s - top);
        sum += e;
        for (std::int64_t d = 0; d < p.head_dim; ++d) o[d] += e * widen(row_of<T>(t.v, b, j, kv)[d]);
      }
      for (std::int64_t d = 0; d < p.head_dim; ++d) row_of<T>(t.o, b, row, h)[d] = narrow<T>(sum == 0 ? 0 : o[d] / sum);
      t.lse.as<float>()[at] = sum == 0 ? top : top + std::log(sum);
    });
  });
}

void flash_backward(const Problem& p, const Backward& t, Context& ctx) {
  const Tensor dq = ctx.arena.make("dq", DType::f32, p.q_shape()), dk = ctx.arena.make("dk", DType::f32, p.k_shape()),
               dv = ctx.arena.make("dv", DType::f32, p.k_shape());
  ctx.note("attention.flash.backward", p.precision, {backward_flops(p), double(4 * t.q.bytes() + 4 * t.k.bytes() + t.lse.bytes())});
  if (ctx.dry()) return;
  std::fill_n(dq.as<float>(), dq.count(), 0.0f), std::fill_n(dk.as<float>(), dk.count(), 0.0f), std::fill_n(dv.as<float>(), dv.count(), 0.0f);
  with_float(p.precision.dtype, [&]<class T>() {
    const Band band = p.band();
    const float scale = p.scale_or_default();
    ctx.share(p.batch * p.kv_heads, [&](std::int64_t piece, int) {
      const auto b = piece / p.kv_heads, kv = piece % p.kv_heads;
      for (auto h = kv * p.group(); h < (kv + 1) * p.group(); ++h)
        for (std::int64_t i = 0; i < p.len_q; ++i) {
          const auto at = (b * p.heads + h) * p.len_q + i;
          const T *q = row_of<T>(t.q, b, i, h), *d_o = row_of<T>(t.d_o, b, i, h);
          const float delta = dot(d_o, row_of<T>(t.o, b, i, h), p.head_dim) - (t.dlse ? t.dlse.as<float>()[at] : 0.0f);
          for (auto j = band.first(i); j < band.last(i); ++j) {
            const T *k = row_of<T>(t.k, b, j, kv), *v = row_of<T>(t.v, b, j, kv);
            const float prob = std::exp(scale * dot(q, k, p.head_dim) - t.lse.as<float>()[at]);
            const float ds = scale * prob * (dot(d_o, v, p.head_dim) - delta);
            for (std::int64_t d = 0; d < p.head_dim; ++d) {
              row_of<float>(dq, b, i, h)[d] += ds * widen(k[d]);
              row_of<float>(dk, b, j, kv)[d] += ds * widen(q[d]);
              row_of<float>(dv, b, j, kv)[d] += prob * widen(d_o[d]);
            }
          }
        }
    });
    const auto write = [&](const Tensor& from, const Tensor& to) {
      ctx.share(from.shape[0] * from.shape[1] * from.shape[2], [&](std::int64_t at, int) {
        const auto h = at % from.shape[2], row = at / from.shape[2] % from.shape[1], b = at / (from.shape[2] * from.shape[1]);
        for (std::int64_t d = 0; d < p.head_dim; ++d) row_of<T>(to, b, row, h)[d] = narrow<T>(row_of<float>(from, b, row, h)[d]);
      });
    };
    write(dq, t.dq), write(dk, t.dk), write(dv, t.dv);
  });
}

}  // namespace headroom::attention
