// What the hosts of both backwards share: scratch of a row's statistics, the kernel before, sections of heads.
#pragma once
#include <algorithm>
#include <climits>
#include <cmath>

#include "base/divide.h"
#include "base/error.h"
#include "gpu/beside.h"
#include "gpu/check.h"
#include "ops/attention/on_stream.h"
#include "ops/attention/sm90/bwd.h"
#include "ops/attention/sm90/tensors.h"
#include "ops/attention/sm90/tiles.h"

namespace headroom::attention::sm90::backward {

inline Strides strides_of(const Tensor& t) { return {t.stride[0], t.stride[1], t.stride[2]}; }

// As many (batch, head) pairs as keep `bytes` of each in L2, in even sections: a small last one would end in a long tail. But no fewer than give every
// block about two tiles: with less the longest tiles of one section would begin where those of the one before have just ended.
inline int heads_at_once(std::int64_t pairs, double bytes, std::int64_t tiles_of_each, int blocks) {
  const auto enough = std::int64_t(std::ceil(1.9 * blocks / double(tiles_of_each)));
  const std::int64_t fit = std::clamp(std::max(std::int64_t((32 << 20) / bytes), enough), std::int64_t(1), pairs);
  return int(ceil_div(pairs, ceil_div(pairs, fit)));
}

struct Statistics {
  float *lse, *minus_delta;
  int* counters;
  int count;
  Far far;
};

inline Statistics make_statistics(const Problem& p, std::int64_t padded, std::int64_t counters, Context& ctx) {
  Statistics s;
  s.lse = ctx.arena.make("attention.lse_log2", DType::f32, {p.batch * p.heads, padded}).as<float>();
  s.minus_delta = ctx.arena.make("attention.minus_delta", DType::f32, {p.batch * p.heads, padded}).as<float>();
  s.counters = ctx.arena.make("attention.counters", DType::i32, {counters}).as<int>();
  s.count = int(counters);
  const std::int64_t blocks = padded / pre_rows * pre_shape(int(p.heads), int(p.value_dim())).blocks * p.batch;
  check(far_bytes(blocks) < INT_MAX, Code::unsupported, "flash_sm90: {} rows are too many for one launch", padded * p.batch);
  s.far = {static_cast<unsigned char*>(ctx.arena.make("attention.far", DType::u8, {far_bytes(blocks)}).data), int(blocks)};
  return s;
}

// `less`: of LSE·log2e. `listed`: documents whose rows are cut too.
template <class Tiles>
void run_before(const Problem& p, const Backward& t, const Statistics& s, std::int64_t padded, float* dq_to_zero, Context& ctx,
                float less = 0, const DocumentTiles& listed = {}) {
  beside::call<start_before<Tiles>>({.o = t.o.data,
                                     .dout = t.d_o.data,
                                     .o_strides = strides_of(t.o),
                                     .do_strides = strides_of(t.d_o),
                                     .lse = t.lse.as<float>(),
                                     .dlse = t.dlse.data ? t.dlse.as<float>() : nullptr,
                                     .lse2 = s.lse,
                                     .minus_delta = s.minus_delta,
                                     .dq = dq_to_zero,
                                     .zeros = s.counters,
                                     .zero_count = s.count,
                                     .far = s.far,
                                     .len_q = int(p.len_q),
                                     .padded = int(padded),
                                     .heads = int(p.heads),
                                     .dim_v = int(p.value_dim()),
                                     .less = less,
                                     .row_tiles = listed.row_tiles,
                                     .of_tile = listed.step},
                                    int(p.batch * p.heads), cuda_stream(ctx.stream));
  if (t.dsink)
    sum_dsink_on_gpu(
        p, t.with.sink, t.lse,
        {.delta = s.minus_delta, .sign = -1, .padded = padded, .in_sixteens = true, .row_tiles = listed.row_tiles, .of_tile = listed.step},
        t.dsink, ctx);
}

// Head dims past 128 (bwd_wide_host.cpp).
template <class Tiles, Reach reach = Reach::run, bool cap = false>
void backward_wide(const Problem&, const Backward&, Context&);

}  // namespace headroom::attention::sm90::backward
