// Against an oracle that shares no code with it: a sorted list of the format's values in double, and scales by the definition in words.
#include "ops/quantise/quantise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "base/convert.h"
#include "base/random.h"
#include "memory/block.h"
#include "ops/quantise/encode.h"

namespace headroom::quantise {
namespace {

const Device cpu;
constexpr ScaleKind kinds[] = {ScaleKind::one, ScaleKind::row, ScaleKind::run, ScaleKind::block};

struct EightBits {  // e4m3 or e5m2, from its definition
  std::vector<double> values;
  explicit EightBits(DType t) {
    const int mantissa = t == DType::e4m3 ? 3 : 2, bias = t == DType::e4m3 ? 7 : 15, codes = t == DType::e4m3 ? 127 : 124;
    for (int code = 0; code < codes; ++code) {
      const int exponent = code >> mantissa, m = code & ((1 << mantissa) - 1);
      values.push_back(std::ldexp(exponent ? 1 + std::ldexp(m, -mantissa) : std::ldexp(m, -mantissa), std::max(exponent, 1) - bias));
    }
  }
  std::uint8_t code(float x) const {  // nearest, ties to even, the largest where nothing is near
    const double magnitude = std::fabs(double(x));
    const auto above = std::lower_bound(values.begin(), values.end(), magnitude);
    std::size_t code = std::size_t(above - values.begin());
    if (code == values.size()) {
      --code;
    } else if (*above != magnitude) {
      const double middle = (values[code - 1] + values[code]) / 2;
      if (magnitude < middle || (magnitude == middle && code % 2 == 1)) --code;
    }
    return std::uint8_t(code | (std::signbit(x) ? 0x80 : 0));
  }
};

struct Room {
  Block block{32 << 20};
  Arena arena{block.data(), block.bytes()};
  Threads threads;
  Context ctx{arena, cpu, &threads};
  explicit Room(int n = 2) : threads(n) { std::memset(block.data(), 0xa5, block.bytes()); }
};

float at(const Tensor& x, std::int64_t i, std::int64_t j) { return float(load_element(x.data, x.dtype, i * x.shape[1] + j)); }

// What the scale of (line, k) of a copy must be: over all numbers that share it.
float expected_scale(const Tensor& x, const Scaled& y, bool transposed, std::int64_t line, std::int64_t k) {
  const std::int64_t lines = y.values.shape[0], all = y.values.shape[1];
  std::int64_t l0 = 0, l1 = lines, k0 = 0, k1 = all;
  const auto within = [](std::int64_t i, std::int64_t n) { return std::pair{i / 128 * 128, std::min(n, i / 128 * 128 + 128)}; };
  if (y.kind == ScaleKind::row || y.kind == ScaleKind::run) l0 = line, l1 = line + 1;
  if (y.kind == ScaleKind::block) std::tie(l0, l1) = within(line, lines);
  if (y.kind == ScaleKind::run || y.kind == ScaleKind::block) std::tie(k0, k1) = within(k, all);
  float largest = 0;
  for (std::int64_t l = l0; l < l1; ++l)
    for (std::int64_t i = k0; i < k1; ++i)
      if (const float v = std::fabs(transposed ? at(x, i, l) : at(x, l, i)); std::isfinite(v)) largest = std::max(largest, v);
  if (largest == 0) return 1;
  return std::max(largest / (y.values.dtype == DType::e4m3 ? 448.0f : 57344.0f), 0x1p-126f);
}

struct Expected {
  std::int64_t clipped = 0, flushed = 0, nan = 0;
};

void expect_copy(const Tensor& x, const Scaled& y, bool transposed, Expected& counts) {
  const EightBits format(y.values.dtype);
  const auto lines = y.values.shape[0], all = y.values.shape[1];
  std::map<std::pair<std::int64_t, std::int64_t>, float> scales;  // the oracle is slow: once for each that share one
  const bool of_line = y.kind == ScaleKind::row || y.kind == ScaleKind::run;
  for (std::int64_t line = 0; line < lines; ++line)
    for (std::int64_t k = 0; k < all; ++k) {
      const std::int64_t along = y.kind == ScaleKind::run || y.kind == ScaleKind::block ? k / 128 : 0;
      const auto [at_scale, fresh] = scales.try_emplace({of_line ? line : y.kind == ScaleKind::block ? line / 128 : 0, along}, 0.0f);
      float& scale = at_scale->second;
      if (fresh) scale = expected_scale(x, y, transposed, line, k);
      ASSERT_EQ(y.scale_at(line, k), scale) << name_of(y.kind) << " " << line << "," << k;
      const float v = transposed ? at(x, k, line) : at(x, line, k), scaled = v * (1.0f / scale);
      const std::uint8_t got = y.values.as<std::uint8_t>()[line * all + k];
      if (std::isnan(v)) {
        ASSERT_EQ(got & 0x7f, 0x7f);
        ++counts.nan;
        continue;
      }
      ASSERT_EQ(got, format.code(scaled)) << v << " by " << scale << " at " << line << "," << k << " " << name_of(y.kind);
      counts.clipped += std::isinf(v);
      counts.flushed += v != 0 && (got & 0x7f) == 0;
    }
}

// Values over 40 binades, zeros among them, so that every path of the rounding is met.
Tensor filled(DType type, std::int64_t rows, std::int64_t columns, Context& ctx, std::uint64_t seed = 3) {
  const Tensor x = ctx.arena.make("x", type, {rows, columns});
  const Random random{seed};
  with_float(type, [&]<class T>() {
    for (std::int64_t i = 0; i < x.count(); ++i) {
      const auto n = std::uint64_t(i);
      const float size = std::ldexp(1.0f, int(random.stream(1).below(n, 24)) - 20);
      x.as<T>()[i] = narrow<T>(random.stream(2).below(n, 9) == 0 ? 0.0f : random.normal(n) * size);
    }
  });
  return x;
}

TEST(Quantise, OneNumberIsRoundedAsTheGeneralCodeDoes) {
  const auto same = [](float x) {
    const Encoded v = encode<e4m3>(x, 1), g = encode<e5m2>(x, 1);
    ASSERT_EQ(v.bits, narrow_saturating<e4m3>(x).bits) << x;
    ASSERT_EQ(g.bits, narrow_saturating<e5m2>(x).bits) << x;
    ASSERT_EQ(v.nan, std::isnan(x));
    ASSERT_EQ(v.clipped, !std::isnan(x) && std::isnan(widen(narrow<e4m3>(x)))) << x;
    ASSERT_EQ(g.clipped, !std::isnan(x) && std::isinf(widen(narrow<e5m2>(x)))) << x;
    ASSERT_EQ(v.flushed, x != 0 && widen(narrow<e4m3>(x)) == 0) << x;
    ASSERT_EQ(g.flushed, x != 0 && widen(narrow<e5m2>(x)) == 0) << x;
  };
  for (std::uint64_t u = 0; u < 1ull << 32; u += 2039) same(float_of(std::uint32_t(u)));
  for (unsigned code = 0; code < 127; ++code)  // every tie of the finer format, and the numbers beside it
    for (const float low : {widen(e4m3{std::uint8_t(code)}), widen(e5m2{std::uint8_t(std::min(code, 122u))})})
      for (const float high : {widen(e4m3{std::uint8_t(std::min(code + 1, 126u))}), widen(e5m2{std::uint8_t(std::min(code + 1, 123u))})}) {
        const float middle = (low + high) / 2;
        for (const float x : {middle, std::nextafterf(middle, 0.0f), std::nextafterf(middle, INFINITY)}) same(x), same(-x);
      }
  for (const float x : {464.0f, 464.0001f, 61440.0f, 61439.996f, INFINITY, -INFINITY, -0.0f, NAN, 1e-45f}) same(x);
}

TEST(Quantise, EveryKindOfScaleBothWays) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const ScaleKind kind : kinds)
      for (const DType to : {DType::e4m3, DType::e5m2})
        for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 130}, {128, 128}, {131, 259}, {257, 5}}) {
          Room room;
          const Tensor x = filled(type, rows, columns, room.ctx), counts = room.arena.make("counts", DType::i64, {count_size});
          std::fill_n(counts.as<std::int64_t>(), int(count_size), 5);  // what is counted is added
          const Scaled y = make("y", {to, kind}, rows, columns, room.ctx), t = make("t", {to, kind}, columns, rows, room.ctx);
          EXPECT_EQ(Arena::rounded(y.values.bytes()) + Arena::rounded(y.scale.bytes()), bytes_of({to, kind}, rows, columns));
          const Tensor guard = room.arena.make("guard", DType::u8, {256});
          std::fill_n(guard.as<std::uint8_t>(), 256, std::uint8_t(77));
          quantise({x, y, t, counts}, room.ctx);
          Expected expected;
          expect_copy(x, y, false, expected);
          expect_copy(x, t, true, expected);
          if (HasFatalFailure()) return;
          const auto* n = counts.as<std::int64_t>();
          EXPECT_EQ(n[numbers], 5 + 2 * rows * columns);
          EXPECT_EQ(n[clipped], 5 + expected.clipped);
          EXPECT_EQ(n[flushed], 5 + expected.flushed);
          EXPECT_EQ(n[nan], 5);
          for (int i = 0; i < 256; ++i) ASSERT_EQ(guard.as<std::uint8_t>()[i], 77);
        }
}

TEST(Quantise, TheTwoCopiesMayHaveFormatsOfTheirOwnOrBeLeftOut) {
  Room room;
  const Tensor x = filled(DType::f16, 150, 140, room.ctx);
  for (const ScaleKind a : kinds)
    for (const ScaleKind b : kinds) {
      auto scope = room.arena.scope();
      const Scaled y = make("y", {DType::e4m3, a}, 150, 140, room.ctx), t = make("t", {DType::e5m2, b}, 140, 150, room.ctx);
      quantise({x, y, t}, room.ctx);
      Expected counts;
      expect_copy(x, y, false, counts);
      expect_copy(x, t, true, counts);
      if (HasFatalFailure()) return;
      const Scaled only = make("t", {DType::e5m2, b}, 140, 150, room.ctx);
      quantise({x, {}, only}, room.ctx);
      EXPECT_EQ(0, std::memcmp(only.values.data, t.values.data, t.values.bytes()));
    }
}

// Nothing is NaN that was not; one infinity is the format's largest number and leaves the scale of the others alone.
TEST(Quantise, ZerosInfinitiesNaNAndTinyNumbers) {
  for (const ScaleKind kind : kinds)
    for (const DType to : {DType::e4m3, DType::e5m2}) {
      Room room;
      const Tensor x = room.arena.make("x", DType::f32, {130, 200}), counts = room.arena.make("counts", DType::i64, {count_size});
      const Scaled y = make("y", {to, kind}, 130, 200, room.ctx), t = make("t", {to, kind}, 200, 130, room.ctx);
      float* v = x.as<float>();
      const auto run = [&] {
        std::fill_n(counts.as<std::int64_t>(), int(count_size), 0);
        quantise({x, y, t, counts}, room.ctx);
        Expected expected;
        expect_copy(x, y, false, expected);
        expect_copy(x, t, true, expected);
        EXPECT_EQ(counts.as<std::int64_t>()[clipped], expected.clipped);
        EXPECT_EQ(counts.as<std::int64_t>()[flushed], expected.flushed);
        EXPECT_EQ(counts.as<std::int64_t>()[nan], expected.nan);
        return expected;
      };
      std::fill_n(v, 130 * 200, 0.0f);
      v[7] = -0.0f;
      EXPECT_EQ(run().flushed, 0) << "a zero is not lost";
      EXPECT_EQ(y.scale_at(0, 0), 1) << "of zeros";
      EXPECT_EQ(y.values.as<std::uint8_t>()[7], 0x80);
      for (std::int64_t i = 0; i < 130 * 200; ++i) v[i] = float(i % 13) - 6;
      v[3] = INFINITY, v[200 * 129 + 199] = -INFINITY, v[200 * 64 + 100] = NAN;
      const Expected special = run();
      EXPECT_EQ(special.clipped, 4);
      EXPECT_EQ(special.nan, 2);
      EXPECT_LT(y.scale_at(0, 0), 0.1f);
      std::fill_n(v, 130 * 200, INFINITY);
      EXPECT_EQ(run().clipped, 2 * 130 * 200);
      EXPECT_EQ(y.scale_at(0, 0), 1);
      std::fill_n(v, 130 * 200, 1e-45f);
      EXPECT_EQ(run().flushed, 2 * 130 * 200) << "the smallest FP32 number: its scale stays where its inverse is finite";
      std::fill_n(v, 130 * 200, std::numeric_limits<float>::max());
      EXPECT_EQ(run().clipped, 0);
      v[0] = 1e-30f;
      run();
    }
}

TEST(Quantise, BitsDoNotDependOnThreadsNorOnWhatStoodThere) {
  std::vector<std::uint8_t> first;
  for (const int threads : {1, 2, 5}) {
    Room room(threads);
    if (threads == 5) std::memset(room.block.data(), 0, room.block.bytes());
    const Tensor x = filled(DType::bf16, 500, 300, room.ctx);
    std::vector<std::uint8_t> all;
    for (const ScaleKind kind : kinds) {
      const Scaled y = make("y", {DType::e4m3, kind}, 500, 300, room.ctx), t = make("t", {DType::e4m3, kind}, 300, 500, room.ctx);
      quantise({x, y, t}, room.ctx);
      for (const Tensor& v : {y.values, t.values}) all.insert(all.end(), v.as<std::uint8_t>(), v.as<std::uint8_t>() + v.count());
    }
    if (first.empty()) first = all;
    EXPECT_EQ(first, all) << threads;
  }
}

TEST(Quantise, ADryRunTakesTheSameBytesForACard) {
  Arena dry;
  for (const Device& device : {cpu, device_described("h200")}) {
    Context ctx{dry, device};
    const Tensor x = dry.make("x", DType::bf16, {256, 128});
    const Scaled y = make("y", {DType::e4m3, ScaleKind::row}, 256, 128, ctx), t = make("t", {DType::e4m3, ScaleKind::row}, 128, 256, ctx);
    const auto before = dry.used();
    Walk walk;
    ctx.walk = &walk;
    quantise({x, y, t}, ctx);
    EXPECT_EQ(dry.used(), before);
    EXPECT_EQ(walk.steps.at(0).cost.bytes, 2.0 * 256 * 128 + 2 * 256 * 128 + 4 * 256 + 4 * 128);
    quantise({.x = x, .as_is = y, .of = Of::rmsnorm, .weight = dry.make("w", DType::f32, {128}), .rstd = dry.make("r", DType::f32, {256})},
             ctx);
    EXPECT_EQ(walk.steps.at(1).cost.bytes, 2.0 * 256 * 128 + 256 * 128 + 4 * 256 + 4 * 128 + 4 * 256) << "a norm's weight and roots too";
  }
}

TEST(Quantise, WhatDoesNotFitIsRefused) {
  Room room;
  const Tensor x = room.arena.make("x", DType::f32, {4, 6});
  const Scaled good = make("y", {DType::e4m3, ScaleKind::row}, 4, 6, room.ctx);
  EXPECT_THROW(quantise({x}, room.ctx), Error);
  EXPECT_THROW(quantise({x, {}, good}, room.ctx), Error) << "transposed it is [6, 4]";
  EXPECT_THROW(quantise({x, Scaled(good.values)}, room.ctx), Error) << "no scales";
  EXPECT_THROW(quantise({x, Scaled(good.values, good.scale, ScaleKind::one)}, room.ctx), Error);
  EXPECT_THROW(quantise({x, Scaled(x, good.scale, ScaleKind::row)}, room.ctx), Error) << "fp32 is not 8 bits";
  EXPECT_THROW(quantise({x, good, {}, room.arena.make("counts", DType::i64, {1})}, room.ctx), Error);
  EXPECT_THROW(quantise({Tensor(x.data, DType::f32, {2, 2, 6}), good}, room.ctx), Error);
  EXPECT_NO_THROW(quantise({x, good}, room.ctx));
  const Tensor nothing = room.arena.make("x", DType::f32, {0, 6});
  EXPECT_NO_THROW(quantise({nothing, make("y", {DType::e4m3, ScaleKind::one}, 0, 6, room.ctx)}, room.ctx));
}

}  // namespace
}  // namespace headroom::quantise
