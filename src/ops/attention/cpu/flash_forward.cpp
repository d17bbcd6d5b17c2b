// flash forward on the CPU: one tile of queries streams over its keys.
//
// Everything is kept transposed, queries along the vector: Sᵀ[key][query] = K · Qᵀ and Oᵀ[d][query] += Vᵀ · Pᵀ. So K and V are read
// as they lie, one broadcast at a time (only Q is transposed, once), and the row maxima and sums of softmax are plain vector
// operations without a single horizontal step. Q carries scale · log₂e, so the exponential is a power of two.
// The running maximum moves only when a row's scores outgrow it by more than 2⁸ (the sums have room for that): rescaling O is rare.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention/cpu/flash_forward.cpp"
#include <hwy/foreach_target.h>
#include "base/divide.h"
#include "ops/simd_targets.h"

#include "ops/attention/cpu/dropout-inl.h"
#include "ops/attention/cpu/tile_product-inl.h"
#include "ops/attention/cpu/tile_rows-inl.h"
#include "ops/attention/sink.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::attention::HWY_NAMESPACE {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

struct ForwardScratch {
  float *k, *v;      // [keys_per_tile][pitch of either], FP32
  float *q, *o;      // per block: [pitch of keys][block_width], [pitch of values][block_width]
  float *top, *sum;  // per query: running maximum (of log₂ scores) and sum
  float* s;          // [keys_per_tile][block_width]
  float* kept;       // the same, with dropout
  ForwardScratch(float* at, std::int64_t pitch, std::int64_t pitch_v) {
    const auto take = [&](std::int64_t n) { return std::exchange(at, at + n); };
    k = take(keys_per_tile * pitch);
    v = take(keys_per_tile * pitch_v);
    q = take(queries_per_tile * pitch);
    o = take(queries_per_tile * pitch_v);
    top = take(queries_per_tile);
    sum = take(queries_per_tile);
    s = take(keys_per_tile * block_width);
    kept = at;
  }
};

// s[key][query] for keys [begin, end) of a tile becomes −∞ where the band says so. Keys are counted from the tile's first.
HWY_NOINLINE void mask_scores(const Band& band, std::int64_t row, std::int64_t key0, std::int64_t begin, std::int64_t end, float* s) {
  HWY_ALIGN float first[block_width], last[block_width];
  for (int i = 0; i < block_width; ++i) {
    const auto r = std::min(row + i, band.len_q - 1);  // rows past the last are computed and dropped
    first[i] = float(std::clamp<std::int64_t>(band.first(r) - key0, 0, keys_per_tile));
    last[i] = float(std::clamp<std::int64_t>(band.last(r) - key0, 0, keys_per_tile));
  }
  for (auto key = begin; key < end; ++key)
    for (int v = 0; v < block_vectors; ++v) {
      float* at = s + key * block_width + v * lanes;
      const Vec j = hn::Set(floats, float(key));
      const auto seen = hn::And(hn::Ge(j, hn::Load(floats, first + v * lanes)), hn::Lt(j, hn::Load(floats, last + v * lanes)));
      hn::Store(hn::IfThenElse(seen, hn::Load(floats, at), hn::Set(floats, minus_infinity)), floats, at);
    }
}

HWY_NOINLINE void cap_scores(std::int64_t begin, std::int64_t end, float cap_log2, float* s) {
  const Vec cap = hn::Set(floats, cap_log2);
  for (float* at = s + begin * block_width; at < s + end * block_width; at += lanes)
    hn::Store(hn::Mul(cap, tanh(hn::Load(floats, at))), floats, at);
}

// A score falls by slope · |place − key|; key0: the tile's first.
HWY_NOINLINE void let_fall(const ForwardTile& t, std::int64_t row, std::int64_t key0, std::int64_t begin, std::int64_t end, float* s) {
  HWY_ALIGN float place[block_width], slope[block_width];
  for (int i = 0; i < block_width; ++i) {
    const Alibi::Spot spot = t.alibi.of_row(int(t.b), int(std::min(row + i, t.band.len_q - 1)));
    place[i] = float(spot.place - key0);
    slope[i] = t.alibi.slope(spot, int(t.head)) * std::numbers::log2e_v<float>;
  }
  for (auto key = begin; key < end; ++key)
    for (int v = 0; v < block_vectors; ++v) {
      float* at = s + key * block_width + v * lanes;
      const Vec apart = hn::Abs(hn::Sub(hn::Load(floats, place + v * lanes), hn::Set(floats, float(key))));
      hn::Store(hn::NegMulAdd(hn::Load(floats, slope + v * lanes), apart, hn::Load(floats, at)), floats, at);
    }
}

// Keys [key, key + keys) of one head, widened, wherever their pages lie; rows up to `whole` become 0.
template <class T>
void widen_keys(const ForwardTile& t, const Tensor& from, std::int64_t kv_head, std::int64_t key, std::int64_t keys, std::int64_t whole,
                std::int64_t pitch, float* to) {
  const Problem& p = t.problem;
  const auto dim = from.shape[3];
  if (p.page == 0) return widen_rows<T>(rows_of(from, t.b, kv_head), key, keys, whole, dim, pitch, to);
  const std::int32_t* const pages = t.tensors.with.pages.as<std::int32_t>() + t.b * p.pages_of_sequence();
  for (std::int64_t at = 0; at < keys;) {
    const auto page = std::int64_t(pages[(key + at) / p.page]), inside = (key + at) % p.page, here = std::min(p.page - inside, keys - at);
    if (page >= 0 && page < p.pages)
      widen_rows<T>(rows_of(from, page, kv_head), inside, here, here, dim, pitch, to + at * pitch);
    else
      std::fill_n(to + at * pitch, here * pitch, 0.0f);  // no page: no query sees these keys
    at += here;
  }
  std::fill_n(to + keys * pitch, (whole - keys) * pitch, 0.0f);
}

// Scores of keys [begin, end) become probabilities against the running maximum; O is rescaled where that had to move.
HWY_NOINLINE void softmax_scores(std::int64_t begin, std::int64_t end, std::int64_t dims, float* s, float* top, float* sum, float* o) {
  Vec base[block_vectors], total[block_vectors];
  bool moved = false;
  for (int v = 0; v < block_vectors; ++v) {
    Vec a = hn::Set(floats, minus_infinity), b = a;
    for (auto key = begin; key < end; key += 2) {
      a = hn::Max(a, hn::Load(floats, s + key * block_width + v * lanes));
      b = hn::Max(b, hn::Load(floats, s + (key + 1) * block_width + v * lanes));
    }
    a = hn::Max(a, b);
    const Vec before = hn::Load(floats, top + v * lanes);
    const auto outgrown = hn::Gt(a, hn::Add(before, hn::Set(floats, 8.0f)));
    base[v] = before;
    if (!hn::AllFalse(floats, outgrown)) {
      moved = true;
      base[v] = hn::IfThenElse(outgrown, a, before);
      hn::Store(base[v], floats, top + v * lanes);
    }
    // A row that has seen no key yet subtracts 0: −∞ − (−∞) would be a NaN that no input contained.
    base[v] = hn::IfThenZeroElse(hn::Eq(base[v], hn::Set(floats, minus_infinity)), base[v]);
    if (moved) {
      const Vec factor = exp2(hn::Sub(before, base[v]));
      hn::Store(hn::Mul(factor, hn::Load(floats, sum + v * lanes)), floats, sum + v * lanes);
      for (std::int64_t d = 0; d < dims; ++d) {
        float* at = o + d * block_width + v * lanes;
        hn::Store(hn::Mul(factor, hn::Load(floats, at)), floats, at);
      }
    }
    total[v] = hn::Zero(floats);
  }
  for (auto key = begin; key < end; ++key)
    for (int v = 0; v < block_vectors; ++v) {
      float* at = s + key * block_width + v * lanes;
      const Vec p = exp2(hn::Sub(hn::Load(floats, at), base[v]));
      total[v] = hn::Add(total[v], p);
      hn::Store(p, floats, at);
    }
  for (int v = 0; v < block_vectors; ++v) hn::Store(hn::Add(hn::Load(floats, sum + v * lanes), total[v]), floats, sum + v * lanes);
}

// O and LSE of a block's first `rows` queries; `turned` is room for a block of rows.
template <class T>
void write_block(const ForwardTile& t, const Rows& out, std::int64_t row, std::int64_t rows, const float* top, float* sum, const float* o,
                 float* turned, std::int64_t pitch) {
  const Problem& p = t.problem;
  float* lse = t.tensors.lse.as<float>() + (t.b * p.heads + t.head) * p.len_q + row;
  if (p.sink) {
    const float sink = t.tensors.with.sink.as<float>()[t.head];
    for (std::int64_t i = 0; i < block_width; ++i) {
      const Joined all = join_sink(top[i] * std::numbers::ln2_v<float>, sum[i], sink);
      if (i < rows) lse[i] = all.lse;
      sum[i] = all.weight;
    }
  } else {
    for (std::int64_t i = 0; i < rows; ++i)
      lse[i] = sum[i] == 0 ? minus_infinity : (top[i] + std::log2(sum[i])) * std::numbers::ln2_v<float>;
    for (std::int64_t i = 0; i < block_width; ++i) sum[i] = sum[i] == 0 ? 0.0f : 1.0f / sum[i];
  }
  if (t.dropping)
    for (std::int64_t i = 0; i < block_width; ++i) sum[i] *= t.dropping->dropout.factor;
  rows_of_columns(o, block_width, block_width, p.value_dim(), sum, turned, pitch);
  narrow_rows<T>(turned, pitch, out, row, rows, p.value_dim());
}

template <class T>
void forward_tile_of(const ForwardTile& t) {
  const Problem& p = t.problem;
  const Band& band = t.band;
  const auto dim = p.head_dim, dim_v = p.value_dim(), pitch = pitch_of(dim), pitch_v = pitch_of(dim_v), kv_head = t.head / p.group();
  const auto rows = std::min(queries_per_tile, p.len_q - t.row), blocks = ceil_div(rows, block_width);
  const Rows q = rows_of(t.tensors.q, t.b, t.head), o = rows_of(t.tensors.o, t.b, t.head);
  const ForwardScratch x(t.scratch, pitch, pitch_v);
  const float log2e = std::numbers::log2e_v<float>, scale = p.scale_or_default();
  for (std::int64_t block = 0; block < blocks; ++block) {
    const auto first = t.row + block * block_width;
    widen_rows<T>(q, first, std::min<std::int64_t>(block_width, p.len_q - first), block_width, dim, pitch, x.k);
    columns_of(x.k, pitch, block_width, dim, p.softcap != 0 ? scale / p.softcap : scale * log2e, x.q + block * block_width * pitch,
               block_width);
  }
  std::fill_n(x.o, blocks * block_width * pitch_v, 0.0f);
  std::fill_n(x.sum, blocks * block_width, 0.0f);
  std::fill_n(x.top, blocks * block_width, minus_infinity);

  const TileSpan tiles = band.key_tiles(t.row, rows, keys_per_tile);
  for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
    const auto key0 = tile * keys_per_tile, keys = std::min(keys_per_tile, p.len_k - key0), whole = round_up(keys, 8);
    widen_keys<T>(t, t.tensors.k, kv_head, key0, keys, whole, pitch, x.k);
    widen_keys<T>(t, t.tensors.v, kv_head, key0, keys, whole, pitch_v, x.v);
    for (std::int64_t block = 0; block < blocks; ++block) {
      const auto row = t.row + block * block_width, bottom = std::min(row + block_width, p.len_q) - 1;
      const auto begin = std::max<std::int64_t>(band.first(row) - key0, 0) / 8 * 8;
      const auto end = round_up(std::min(band.last(bottom) - key0, keys), 8);
      if (begin >= end) continue;
      float *qt = x.q + block * block_width * pitch, *ot = x.o + block * block_width * pitch_v;
      tile_product<A::by_rows, block_vectors, false>(end - begin, dim, {x.k + begin * pitch, pitch}, {qt, block_width},
                                                     {x.s + begin * block_width, block_width});
      if (p.softcap != 0) cap_scores(begin, end, p.softcap * log2e, x.s);
      if (p.alibi) let_fall(t, row, key0, begin, end, x.s);
      const bool seen_by_all = band.first(bottom) <= key0 + begin && band.last(row) >= key0 + end;
      if (!seen_by_all) mask_scores(band, row, key0, begin, end, x.s);
      softmax_scores(begin, end, dim_v, x.s, x.top + block * block_width, x.sum + block * block_width, ot);
      if (t.dropping) {  // drops what the sum has seen; what is left grows by dropout's factor at the end
        fill_factors<false>(*t.dropping, t.b * p.heads + t.head, {row, row + block_width, key0 + begin, key0 + end}, 1,
                            x.kept + begin * block_width, block_width);
        for (auto at = begin * block_width; at < end * block_width; at += lanes)
          hn::Store(hn::Mul(hn::Load(floats, x.s + at), hn::Load(floats, x.kept + at)), floats, x.s + at);
      }
      tile_product<A::by_columns, block_vectors, true>(round_up(dim_v, 8), end - begin, {x.v + begin * pitch_v, pitch_v},
                                                       {x.s + begin * block_width, block_width}, {ot, block_width});
    }
  }
  for (std::int64_t block = 0; block < blocks; ++block) {
    const auto row = t.row + block * block_width, at = block * block_width;
    write_block<T>(t, o, row, std::min<std::int64_t>(block_width, p.len_q - row), x.top + at, x.sum + at, x.o + at * pitch_v, x.v, pitch_v);
  }
}

void ForwardTileHere(const ForwardTile& t) {
  switch (t.problem.precision.dtype) {
    case DType::bf16: return forward_tile_of<bf16>(t);
    case DType::f16: return forward_tile_of<f16>(t);
    default: return forward_tile_of<float>(t);
  }
}

std::int64_t ForwardScratchHere(const Problem& p) {
  return (keys_per_tile + queries_per_tile) * (pitch_of(p.head_dim) + pitch_of(p.value_dim())) + 2 * queries_per_tile +
         (p.dropout != 0 ? 2 : 1) * keys_per_tile * block_width;
}

}  // namespace headroom::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::attention {
HWY_EXPORT(ForwardTileHere);
HWY_EXPORT(ForwardScratchHere);
namespace flash_cpu {
void forward_tile(const ForwardTile& t) { HWY_DYNAMIC_DISPATCH(ForwardTileHere)(t); }
std::int64_t forward_scratch(const Problem& p) { return HWY_DYNAMIC_DISPATCH(ForwardScratchHere)(p); }
}  // namespace flash_cpu
}  // namespace headroom::attention
#endif
