// Copies in 8 bits on a card: to the bit the CPU's, which quantise_test.cpp holds to the definition in words.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/convert.h"
#include "gpu/device.h"
#include "gpu/place.h"
#include "ops/quantise/encode.h"
#include "ops/quantise/quantise.h"

namespace headroom::quantise {
namespace {

class QuantiseGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "needs a CUDA device";
  }
};

struct Asked {
  DType from;
  std::int64_t rows, columns;
  ScaledFormat as_is, transposed;
  bool wants_as_is = true, wants_transposed = true;
  bool shifted = false;  // x is not aligned to 16 bytes
};

// All bytes that the op may write, with what lies after them, and which of them are scales that no product reads.
struct Written {
  std::vector<char> as_is, transposed, counts;
  std::vector<float> as_is_scales, transposed_scales;
};

Written run(const Asked& q, const std::vector<float>& values, const Device& device) {
  Place place(device, 2);
  const PlaceMemory memory = place.take(8u << 20);
  const std::vector<char> poison(memory.bytes(), char(0xa5));
  place.copy_in(memory.data(), poison.data(), poison.size());
  Arena arena(memory.data(), memory.bytes());
  Context ctx{arena, device, &place.threads(), place.stream()};
  const std::int64_t n = q.rows * q.columns;
  std::vector<char> stored(std::size_t(n) * size_of(q.from));
  with_float(q.from, [&]<class T>() {
    for (std::int64_t i = 0; i < n; ++i) reinterpret_cast<T*>(stored.data())[i] = narrow<T>(values[std::size_t(i)]);
  });
  Tensor x = arena.make("x", q.from, {n + 16});
  x.data = x.as<char>() + (q.shifted ? size_of(q.from) : 0);
  x = Tensor(x.data, q.from, {q.rows, q.columns});
  place.copy_in(x.data, stored.data(), stored.size());
  const Tensor counts = arena.make("counts", DType::i64, {count_size});
  const std::vector<std::int64_t> before(count_size, 5);
  place.copy_in(counts.data, before.data(), counts.bytes());
  const Scaled y = q.wants_as_is ? make("y", q.as_is, q.rows, q.columns, ctx) : Scaled();
  const Scaled t = q.wants_transposed ? make("t", q.transposed, q.columns, q.rows, ctx) : Scaled();
  const auto used = arena.used();
  quantise({x, y, t, counts}, ctx);
  EXPECT_EQ(arena.used(), used);
  Written w;
  const auto values_and_margin = [&](const Tensor& v) {  // the arena rounds up to 256 bytes: what is behind the tensor must stay
    std::vector<char> all(Arena::rounded(v.bytes()));
    if (v) place.copy_out(all.data(), v.data, all.size());
    return all;
  };
  const auto scales = [&](const Scaled& s, std::int64_t lines, std::int64_t k) {
    std::vector<float> all, stored_scales;
    if (!s) return all;
    stored_scales.resize(std::size_t(s.scale.count()));
    place.copy_out(stored_scales.data(), s.scale.data, s.scale.bytes());
    Scaled host = s;
    host.scale.data = stored_scales.data();
    for (std::int64_t line = 0; line < lines; ++line)
      for (std::int64_t i = 0; i < k; i += 128) all.push_back(host.scale_at(line, i));
    return all;
  };
  w.as_is = values_and_margin(y.values), w.transposed = values_and_margin(t.values);
  w.as_is_scales = scales(y, q.rows, q.columns), w.transposed_scales = scales(t, q.columns, q.rows);
  w.counts.resize(counts.bytes());
  place.copy_out(w.counts.data(), counts.data, counts.bytes());
  return w;
}

std::vector<float> over_many_binades(std::int64_t count) {
  const Random random{3};
  std::vector<float> all;
  for (std::uint64_t i = 0; i < std::uint64_t(count); ++i)
    all.push_back(random.stream(2).below(i, 9) == 0 ? 0.0f : random.normal(i) * std::ldexp(1.0f, int(random.stream(1).below(i, 24)) - 20));
  return all;
}

std::int64_t expect_same(const Asked& q, const std::vector<float>& values, const Device& card) {
  SCOPED_TRACE(fmt::format("{} {}x{} {} {} and {} {}{}", name_of(q.from), q.rows, q.columns, name_of(q.as_is.dtype), name_of(q.as_is.scale),
                           name_of(q.transposed.dtype), name_of(q.transposed.scale), q.shifted ? ", not aligned" : ""));
  const Written expected = run(q, values, {}), got = run(q, values, card);
  EXPECT_TRUE(got.as_is == expected.as_is);
  EXPECT_TRUE(got.transposed == expected.transposed);
  EXPECT_EQ(got.as_is_scales, expected.as_is_scales);
  EXPECT_EQ(got.transposed_scales, expected.transposed_scales);
  EXPECT_TRUE(got.counts == expected.counts);
  const Written again = run(q, values, card);
  EXPECT_TRUE(again.as_is == got.as_is && again.transposed == got.transposed && again.counts == got.counts) << "other bits";
  std::int64_t counts[count_size];
  std::memcpy(counts, got.counts.data(), sizeof counts);
  return counts[flushed];
}

constexpr ScaleKind every_kind[] = {ScaleKind::one, ScaleKind::row, ScaleKind::run, ScaleKind::block};
constexpr DType both[] = {DType::e4m3, DType::e5m2};

TEST_F(QuantiseGpu, BitsScalesAndCountsAreTheCpus) {
  const Device card = cuda_device(0);
  std::int64_t flushed_anywhere = 0;
  for (const DType from : {DType::f32, DType::bf16, DType::f16})
    for (const auto& [rows, columns] :
         {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 130}, {128, 128}, {131, 259}, {257, 5}, {144, 272}, {400, 1040}}) {
      const auto values = over_many_binades(rows * columns);
      for (const ScaleKind a : every_kind)
        for (const ScaleKind b : every_kind) {
          flushed_anywhere += expect_same({from, rows, columns, {DType::e4m3, a}, {a == b ? DType::e4m3 : DType::e5m2, b}}, values, card);
          if (HasFailure()) return;
        }
      for (const DType to : both) {
        expect_same({from, rows, columns, {to, ScaleKind::run}, {to, ScaleKind::run}, true, false}, values, card);
        expect_same({from, rows, columns, {to, ScaleKind::block}, {to, ScaleKind::block}, false, true}, values, card);
        expect_same({from, rows, columns, {to, ScaleKind::row}, {to, ScaleKind::row}, true, false}, values, card);
        expect_same({from, rows, columns, {to, ScaleKind::row}, {to, ScaleKind::run}, true, true, true}, values, card);
      }
      if (HasFailure()) return;
    }
  EXPECT_GT(flushed_anywhere, 0);
}

// Zeros, negative zeros, infinities, NaN of both signs, the smallest and the largest numbers; alone, together and beside usual ones.
TEST_F(QuantiseGpu, SpecialNumbersAreTheCpus) {
  const Device card = cuda_device(0);
  const float specials[] = {INFINITY, -INFINITY, NAN, -NAN, 0.0f, -0.0f, 1e-45f, -3.4e38f, 3.4028235e38f, 1e-30f, 65504.0f, 6e-8f};
  for (const DType from : {DType::f32, DType::bf16, DType::f16})
    for (const ScaleKind kind : every_kind)
      for (const DType to : both) {
        const Asked q{from, 144, 208, {to, kind}, {to, kind}};
        const std::size_t n = 144 * 208;
        for (const float one : specials) {
          expect_same(q, std::vector<float>(n, one), card);
          auto values = over_many_binades(std::int64_t(n));
          for (std::size_t i = 5; i < n; i += 997) values[i] = one;
          expect_same(q, values, card);
          if (kind == ScaleKind::row) expect_same({from, 144, 208, {to, kind}, {to, kind}, true, false}, values, card);
        }
        auto values = over_many_binades(std::int64_t(n));
        for (std::size_t i = 0; i < n; i += 61) values[i] = specials[i % 12];
        expect_same(q, values, card);
        if (HasFailure()) return;
      }
}

// Every FP32 number that the smaller formats tell apart, and its neighbours, with a scale of 1: what the hardware's conversion is given.
TEST_F(QuantiseGpu, EveryTieIsRoundedAsTheCpuDoes) {
  const Device card = cuda_device(0);
  for (const DType to : both) {
    std::vector<float> values;
    const float largest = to == DType::e4m3 ? 448.0f : 57344.0f;
    for (std::uint32_t bits = 0; bits < bits_of(largest); bits += 1u << 18)
      for (const std::uint32_t near : {bits, bits + 1, bits - 1})
        if (near <= bits_of(largest)) values.push_back(float_of(near)), values.push_back(-float_of(near));
    values.resize((values.size() / 128 + 1) * 128, largest);
    expect_same({DType::f32, std::int64_t(values.size()) / 128, 128, {to, ScaleKind::one}, {to, ScaleKind::one}}, values, card);
  }
}

TEST_F(QuantiseGpu, AlignedSidesOfManyTiles) {
  const Device card = cuda_device(0);
  for (const ScaleKind kind : every_kind)
    expect_same({DType::bf16, 1024, 768, {DType::e4m3, kind}, {DType::e4m3, kind}}, over_many_binades(1024 * 768), card);
}

}  // namespace
}  // namespace headroom::quantise
