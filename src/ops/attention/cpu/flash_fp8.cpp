// flash_fp8 — what flash_sm90_fp8 computes, on a CPU, for tests and studies: the same tiles from the last to the first, Hopper's sums of 8-bit products
// (ops/matmul/hopper_adder.h), the same reference that may lag, weights rounded to E4M3. Beside a card it differs in 2^x, in the order of a row's sum,
// and where the published rule for the unit's sums is not the whole truth.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "base/convert.h"
#include "ops/attention/fp8/fp8.h"
#include "ops/attention/impl.h"
#include "ops/attention/refusals.h"
#include "ops/attention/sm90/tiles_fp8.h"
#include "ops/matmul/hopper_adder.h"

namespace headroom::attention {

namespace {

using matmul::hopper_depth;
constexpr int least = -6;  // the exponent of E4M3's smallest normal number

struct Head {               // numbers as stored, without their scales
  std::vector<float> k, v;  // [len_k, dim], [dim_v, keys in the order of their places]
  std::int64_t v_line;
};

std::vector<float> widened(const e4m3* from, std::int64_t count, std::int64_t rows, std::int64_t apart) {
  std::vector<float> all(std::size_t(rows * count));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t d = 0; d < count; ++d) all[std::size_t(i * count + d)] = widen(from[i * apart + d]);
  return all;
}

Head head_of(const Problem& p, const Forward& t, std::int64_t b, std::int64_t kv) {
  Head h;
  h.k = widened(t.k.as<e4m3>() + b * t.k.stride[0] + kv * t.k.stride[2], p.head_dim, p.len_k, t.k.stride[1]);
  const std::int64_t blocks = t.v.shape[2], dim_v = p.value_dim();
  const e4m3* const v = t.v.as<e4m3>() + b * t.v.stride[0] + kv * t.v.stride[1];
  h.v_line = blocks * keys_of_v_block;
  h.v.resize(std::size_t(h.v_line * dim_v));
  for (std::int64_t block = 0; block < blocks; ++block)
    for (std::int64_t d = 0; d < dim_v; ++d)
      for (std::int64_t place = 0; place < keys_of_v_block; ++place)
        h.v[std::size_t(d * h.v_line + block * keys_of_v_block + place)] = widen(v[block * t.v.stride[2] + d * keys_of_v_block + place]);
  return h;
}

float product(float sum, const float* a, const float* b, std::int64_t count) {  // sum + Σ a·b, 32 at a time
  for (std::int64_t l = 0; l < count; l += hopper_depth)
    sum = matmul::add_as_hopper(sum, a + l, b + l, std::min<std::int64_t>(hopper_depth, count - l), least, least);
  return sum;
}

struct Row {
  float maximum = -std::numeric_limits<float>::infinity(), sum = 0;
  std::vector<float> o;

  // One tile: scores of keys [first, first + s.size()), −∞ where masked. As RowsWithin of softmax.cuh.
  void add(std::vector<float>& s, float scale, std::int64_t first, const Head& h) {
    float high = maximum;
    for (const float x : s) high = std::fmax(high, x);
    if (!((high - maximum) * scale > fp8_slack)) high = maximum;
    const float reference = std::isinf(high) && high < 0 ? 0.f : high, offset = reference * scale - fp8_lift,
                factor = std::exp2((maximum - reference) * scale);
    maximum = high;
    float total = 0;
    std::vector<float> weights(s.size(), 0.0f);  // in the order of V's places
    for (std::size_t j = 0; j < s.size(); ++j) {
      const float weight = std::exp2(std::fma(s[j], scale, -offset));
      total += weight;
      const std::size_t block = j / std::size_t(keys_of_v_block) * std::size_t(keys_of_v_block);
      weights[block + std::size_t(place_of_key(int(j % std::size_t(keys_of_v_block))))] = widen(narrow_saturating<e4m3>(weight));
    }
    sum = sum * factor + total;
    const std::int64_t there = std::min<std::int64_t>(std::int64_t(s.size()), h.v_line - first);
    for (std::size_t d = 0; d < o.size(); ++d)
      o[d] = product(o[d] * factor, weights.data(), h.v.data() + std::int64_t(d) * h.v_line + first, there);
  }
};

}  // namespace

Support flash_fp8_supports(const Problem& p, const Device& device, Pass pass) {
  if (device.kind != DeviceKind::cpu) return Support::no("needs the CPU");
  if (Support s = first_refusal({p, device, pass}, {needs_fp8, needs_forward, needs_positive_scale}); !s) return s;
  return asks_no_more_than(p, {.dim_v = true});
}

void flash_fp8_forward(const Problem& p, const Forward& t, Context& ctx) {
  const auto op = ctx.note("attention.flash_fp8.forward", p.precision, forward_cost(p), Work::attention);
  if (ctx.dry()) return;
  const Band band = p.band();
  const std::int64_t dim_v = p.value_dim(),
                     keys = with_fp8_tiles<bf16, e4m3>(std::max(p.head_dim, dim_v), [](auto tiles) { return tiles.keys; });
  ctx.share(p.batch * p.heads, [&](std::int64_t piece, int) {
    const std::int64_t b = piece / p.heads, head = piece % p.heads, kv = head / p.group();
    const Head h = head_of(p, t, b, kv);
    const float of_both = t.with.q_scale.as<float>()[piece] * t.with.k_scale.as<float>()[b * p.kv_heads + kv],
                of_v = t.with.v_scale.as<float>()[b * p.kv_heads + kv],
                scale = std::clamp(of_both * (p.scale_or_default() * std::numbers::log2e_v<float>), 0x1p-126f, 0x1p100f);
    std::vector<float> s(static_cast<std::size_t>(keys));
    for (std::int64_t i = 0; i < p.len_q; ++i) {
      const std::vector<float> q = widened(t.q.as<e4m3>() + b * t.q.stride[0] + i * t.q.stride[1] + head * t.q.stride[2], p.head_dim, 1, 0);
      Row row{.o = std::vector<float>(std::size_t(dim_v), 0.0f)};
      const std::int64_t first = band.first(i), last = band.last(i);
      if (first < last)
        for (std::int64_t tile = (last - 1) / keys; tile >= first / keys; --tile) {
          for (std::int64_t j = 0; j < keys; ++j) {
            const std::int64_t key = tile * keys + j;
            s[std::size_t(j)] = key >= first && key < last ? product(0, q.data(), &h.k[std::size_t(key * p.head_dim)], p.head_dim)
                                                           : -std::numeric_limits<float>::infinity();
          }
          row.add(s, scale, tile * keys, h);
        }
      const bool empty = std::isinf(row.maximum) && row.maximum < 0;
      const float inverse = empty ? 0 : 1 / row.sum * of_v;
      bf16* const o = t.o.as<bf16>() + b * t.o.stride[0] + i * t.o.stride[1] + head * t.o.stride[2];
      for (std::int64_t d = 0; d < dim_v; ++d) o[d] = narrow<bf16>(row.o[std::size_t(d)] * inverse);
      t.lse.as<float>()[piece * p.len_q + i] =
          empty ? row.maximum : (row.maximum * scale + std::log2(row.sum) - fp8_lift) * std::numbers::ln2_v<float>;
    }
  });
}

}  // namespace headroom::attention
