// flash backward on the CPU: one strip of keys meets every query that sees it; P is recomputed from LSE.
//
// Here the keys lie along the vector: P[query][key] = exp2(Q · Kᵀ − LSE), dP = dO · Vᵀ, dS = P∘(dP − Δ)·scale, then
// dVᵀ[d][key] += dOᵀ · P, dKᵀ[d][key] += Qᵀ · dS, dQ[query][d] += dS · K. Only the strip's K and V are transposed, once; Q and dO are
// read as they lie; LSE and Δ are one broadcast a row. dK and dV of the strip stay in scratch until it is finished; dQ is added to in
// the order of the strips. Five products a tile, none of them twice.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention/cpu/flash_backward.cpp"
#include <hwy/foreach_target.h>
#include "ops/simd_targets.h"

#include "ops/attention/cpu/dropout-inl.h"
#include "ops/attention/cpu/tile_product-inl.h"
#include "ops/attention/cpu/tile_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::attention::HWY_NAMESPACE {

struct BackwardScratch {
  float *kt, *vt, *dkt, *dvt;  // [pitch of keys, or of values][keys_per_strip]; kt carries scale · log₂e, or scale / cap
  float* k;                    // [keys_per_strip][the wider pitch]
  float *q, *d_o;              // [queries_per_step][pitch of keys, of values]
  float *p, *ds;               // [queries_per_step][block_width]
  float *lse, *delta;          // [queries_per_step]; LSE in log₂, +∞ past the last row so that its P is 0
  float *place,
      *slope;   // [queries_per_step], where scores fall (alibi.h): a row's, counted from the block's first key, and its slope in log₂
  float* kept;  // [queries_per_step][block_width], with what depends on a score's place: dropout's factors of P
  BackwardScratch(float* at, std::int64_t pitch, std::int64_t pitch_v) {
    const auto take = [&](std::int64_t n) { return std::exchange(at, at + n); };
    kt = take(keys_per_strip * pitch);
    vt = take(keys_per_strip * pitch_v);
    dkt = take(keys_per_strip * pitch);
    dvt = take(keys_per_strip * pitch_v);
    k = take(keys_per_strip * std::max(pitch, pitch_v));
    q = take(queries_per_step * pitch);
    d_o = take(queries_per_step * pitch_v);
    p = take(queries_per_step * block_width);
    ds = take(queries_per_step * block_width);
    lse = take(queries_per_step);
    delta = take(queries_per_step);
    place = take(queries_per_step);
    slope = take(queries_per_step);
    kept = at;
  }
};

struct Slopes {  // derivatives of a score by the product that it is made from
  float scale, cap_log2;
};

// p holds scores and becomes probabilities; ds holds dP and becomes dS. Rows [begin, end) of a step that starts at query `row`,
// keys from `key`. With dropout, dV is given P times its factors, and dP takes them too. A probability is held to 1: where scores are so large that LSE has no
// digits left behind the point, its rounding says more. by_place: with dropout's factors and ALiBi's slope, 1 and 0 where there is none.
template <bool masked, bool capped, bool by_place>
HWY_NOINLINE void gradient_of_softmax(const Band& band, std::int64_t row, std::int64_t key, std::int64_t begin, std::int64_t end,
                                      Slopes slopes, const BackwardScratch& x) {
  const Vec scale = hn::Set(floats, slopes.scale), cap = hn::Set(floats, slopes.cap_log2);
  for (auto i = begin; i < end; ++i) {
    const Vec lse = hn::Set(floats, x.lse[i]), delta = hn::Set(floats, x.delta[i]);
    Vec first = hn::Zero(floats), last = first;
    if constexpr (masked) {
      const auto r = std::min(row + i, band.len_q - 1);
      first = hn::Set(floats, float(std::clamp<std::int64_t>(band.first(r) - key, 0, block_width)));
      last = hn::Set(floats, float(std::clamp<std::int64_t>(band.last(r) - key, 0, block_width)));
    }
    for (int v = 0; v < block_vectors; ++v) {
      float *p_at = x.p + i * block_width + v * lanes, *ds_at = x.ds + i * block_width + v * lanes;
      Vec score = hn::Load(floats, p_at), factor = scale;
      if constexpr (capped) {
        const Vec t = tanh(score);
        score = hn::Mul(cap, t);
        factor = hn::Mul(scale, slope_of_tanh(t));
      }
      if constexpr (by_place) {
        const Vec apart = hn::Abs(hn::Sub(hn::Iota(floats, float(v * lanes)), hn::Set(floats, x.place[i])));
        score = hn::NegMulAdd(hn::Set(floats, x.slope[i]), apart, score);
      }
      const Vec power = hn::Sub(score, lse);
      Vec p = exp2(hn::IfThenZeroElse(hn::Gt(power, hn::Zero(floats)), power));
      if constexpr (masked) {
        const Vec j = hn::Iota(floats, float(v * lanes));
        p = hn::IfThenElseZero(hn::And(hn::Ge(j, first), hn::Lt(j, last)), p);
      }
      Vec dp = hn::Load(floats, ds_at);
      if constexpr (by_place) dp = hn::Mul(dp, hn::Load(floats, x.kept + i * block_width + v * lanes));
      Vec ds = hn::Mul(hn::Mul(p, factor), hn::Sub(dp, delta));
      if constexpr (by_place) p = hn::Mul(p, hn::Load(floats, x.kept + i * block_width + v * lanes));
      if constexpr (masked) {
        const Vec j = hn::Iota(floats, float(v * lanes));
        ds = hn::IfThenElseZero(hn::And(hn::Ge(j, first), hn::Lt(j, last)), ds);  // 0 · ∞ of an unseen key is no NaN
      }
      hn::Store(p, floats, p_at);
      hn::Store(ds, floats, ds_at);
    }
  }
}

// Queries [row, row + rows) of one head against the strip; whole: rows rounded up to register blocks.
template <class T>
void backward_step(const BackwardStrip& t, std::int64_t head, std::int64_t row, std::int64_t rows, std::int64_t keys,
                   const BackwardScratch& x) {
  const Problem& p = t.problem;
  const Band& band = t.band;
  const auto dim = p.head_dim, dim_v = p.value_dim(), pitch = pitch_of(dim), pitch_v = pitch_of(dim_v), whole = round_up(rows, 8),
             first_of_head = (t.b * p.heads + head) * p.len_q;
  constexpr float log2e = std::numbers::log2e_v<float>;
  const Slopes slopes{p.scale_or_default(), p.softcap * log2e};
  widen_rows<T>(rows_of(t.tensors.q, t.b, head), row, rows, whole, dim, pitch, x.q);
  widen_rows<T>(rows_of(t.tensors.d_o, t.b, head), row, rows, whole, dim_v, pitch_v, x.d_o);
  for (std::int64_t i = 0; i < whole; ++i) {
    const auto at = first_of_head + row + i;
    x.lse[i] = i < rows ? t.tensors.lse.as<float>()[at] * std::numbers::log2e_v<float> : std::numeric_limits<float>::infinity();
    x.delta[i] = i < rows ? t.delta[at] : 0.0f;
  }
  float* dq = t.dq.as<float>() + t.b * t.dq.stride[0] + row * t.dq.stride[1] + head * t.dq.stride[2];
  const auto dq_pitch = t.dq.stride[1];
  for (std::int64_t block = 0; block < keys; block += block_width) {
    const auto key = t.key + block, width = std::min<std::int64_t>(block_width, keys - block);
    const auto begin = std::max<std::int64_t>(band.first_row(key) - row, 0) / 8 * 8;
    const auto end = round_up(std::min(band.last_row(key + width - 1) - row, rows), 8), count = end - begin;
    if (count <= 0) continue;
    tile_product<A::by_rows, block_vectors, false>(count, dim, {x.q + begin * pitch, pitch}, {x.kt + block, keys_per_strip},
                                                   {x.p + begin * block_width, block_width});
    tile_product<A::by_rows, block_vectors, false>(count, dim_v, {x.d_o + begin * pitch_v, pitch_v}, {x.vt + block, keys_per_strip},
                                                   {x.ds + begin * block_width, block_width});
    const auto bottom = std::min(row + end, p.len_q) - 1;
    const bool seen_by_all = width == block_width && band.first(bottom) <= key && band.last(row + begin) >= key + width;
    if (t.dropping)
      fill_factors<true>(*t.dropping, t.b * p.heads + head, {row + begin, row + end, key, key + block_width}, t.dropping->dropout.factor,
                         x.kept + begin * block_width, block_width);
    else if (p.alibi)
      std::fill_n(x.kept + begin * block_width, count * block_width, 1.0f);
    if (p.asks_by_place())
      for (auto i = begin; i < end; ++i) {
        const Alibi::Spot spot = t.alibi.of_row(int(t.b), int(std::min(row + i, p.len_q - 1)));
        x.place[i] = float(spot.place - key);
        x.slope[i] = t.alibi.slope(spot, int(head)) * log2e;
      }
    const auto with = [&]<bool capped, bool by_place>() HWY_ATTR {
      if (seen_by_all)
        gradient_of_softmax<false, capped, by_place>(band, row, key, begin, end, slopes, x);
      else
        gradient_of_softmax<true, capped, by_place>(band, row, key, begin, end, slopes, x);
    };
    if (p.softcap != 0)
      p.asks_by_place() ? with.template operator()<true, true>() : with.template operator()<true, false>();
    else
      p.asks_by_place() ? with.template operator()<false, true>() : with.template operator()<false, false>();
    const Right probabilities{x.p + begin * block_width, block_width}, dscores{x.ds + begin * block_width, block_width};
    tile_product<A::by_columns, block_vectors, true>(round_up(dim_v, 8), count, {x.d_o + begin * pitch_v, pitch_v}, probabilities,
                                                     {x.dvt + block, keys_per_strip});
    tile_product<A::by_columns, block_vectors, true>(round_up(dim, 8), count, {x.q + begin * pitch, pitch}, dscores,
                                                     {x.dkt + block, keys_per_strip});
    // dQ's rows are real: the padded ones of the last register block would be a neighbour's, so they stop at the last whole block
    // and the rest goes through a small tile of its own.
    const auto real = std::min(end, rows) / register_rows * register_rows;
    const auto depth = std::min<std::int64_t>(round_up(width, 8), block_width);  // keys past the last have dS = 0 and K = 0
    std::int64_t d = 0;
    const auto add = [&]<int vectors>() HWY_ATTR {
      const Right kd{x.k + block * pitch + d, pitch};
      if (real > begin)
        tile_product<A::by_rows, vectors, true>(real - begin, depth, {x.ds + begin * block_width, block_width}, kd,
                                                {dq + begin * dq_pitch + d, dq_pitch});
      if (real >= std::min(end, rows)) return;
      HWY_ALIGN float rest[register_rows * vectors * lanes];
      const auto left = std::min(end, rows) - real;
      tile_product<A::by_rows, vectors, false>(register_rows, depth, {x.ds + real * block_width, block_width}, kd, {rest, vectors * lanes});
      for (std::int64_t i = 0; i < left; ++i)
        for (int e = 0; e < vectors * lanes; ++e) dq[(real + i) * dq_pitch + d + e] += rest[i * vectors * lanes + e];
    };
    for (; d + 2 * lanes <= round_up(dim, lanes); d += 2 * lanes) add.template operator()<2>();
    for (; d < dim; d += lanes) add.template operator()<1>();
  }
}

template <class T>
void backward_strip_of(const BackwardStrip& t) {
  const Problem& p = t.problem;
  const auto dim = p.head_dim, dim_v = p.value_dim(), pitch = pitch_of(dim), pitch_v = pitch_of(dim_v),
             keys = std::min(keys_per_strip, p.len_k - t.key);
  const BackwardScratch x(t.scratch, pitch, pitch_v);
  const float scale = p.scale_or_default();
  widen_rows<T>(rows_of(t.tensors.v, t.b, t.kv_head), t.key, keys, keys_per_strip, dim_v, pitch_v, x.k);
  columns_of(x.k, pitch_v, keys_per_strip, dim_v, 1, x.vt, keys_per_strip);
  widen_rows<T>(rows_of(t.tensors.k, t.b, t.kv_head), t.key, keys, keys_per_strip, dim, pitch, x.k);
  columns_of(x.k, pitch, keys_per_strip, dim, p.softcap != 0 ? scale / p.softcap : scale * std::numbers::log2e_v<float>, x.kt,
             keys_per_strip);
  std::fill_n(x.dkt, pitch * keys_per_strip, 0.0f);
  std::fill_n(x.dvt, pitch_v * keys_per_strip, 0.0f);
  const TileSpan steps = t.band.row_tiles(t.key, keys, queries_per_step);
  for (auto head = t.kv_head * p.group(); head < (t.kv_head + 1) * p.group(); ++head)
    for (std::int64_t step = steps.begin; step < steps.end; ++step) {
      const auto row = step * queries_per_step;
      backward_step<T>(t, head, row, std::min(queries_per_step, p.len_q - row), keys, x);
    }
  const auto write = [&](const float* from, const Tensor& to, std::int64_t columns, std::int64_t its_pitch) HWY_ATTR {
    rows_of_columns(from, keys_per_strip, keys_per_strip, columns, nullptr, x.k, its_pitch);
    narrow_rows<T>(x.k, its_pitch, rows_of(to, t.b, t.kv_head), t.key, keys, columns);
  };
  write(x.dkt, t.tensors.dk, dim, pitch);
  write(x.dvt, t.tensors.dv, dim_v, pitch_v);
}

void BackwardStripHere(const BackwardStrip& t) {
  switch (t.problem.precision.dtype) {
    case DType::bf16: return backward_strip_of<bf16>(t);
    case DType::f16: return backward_strip_of<f16>(t);
    default: return backward_strip_of<float>(t);
  }
}

std::int64_t BackwardScratchHere(const Problem& p) {
  const auto pitch = pitch_of(p.head_dim), pitch_v = pitch_of(p.value_dim());
  return (2 * keys_per_strip + queries_per_step) * (pitch + pitch_v) + keys_per_strip * std::max(pitch, pitch_v) +
         (p.asks_by_place() ? 3 : 2) * queries_per_step * block_width + 4 * queries_per_step;
}

}  // namespace headroom::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::attention {
HWY_EXPORT(BackwardStripHere);
HWY_EXPORT(BackwardScratchHere);
namespace flash_cpu {
void backward_strip(const BackwardStrip& t) { HWY_DYNAMIC_DISPATCH(BackwardStripHere)(t); }
std::int64_t backward_scratch(const Problem& p) { return HWY_DYNAMIC_DISPATCH(BackwardScratchHere)(p); }
}  // namespace flash_cpu
}  // namespace headroom::attention
#endif
