#include "ops/matmul/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/convert.h"
#include "base/random.h"
#include "memory/block.h"
#include "ops/matmul/hopper_adder.h"
#include "ops/matmul/reference.h"
#include "ops/quantise/quantise.h"

namespace headroom {
namespace {

const Device cpu;

struct Case {
  std::int64_t batch, heads, m, n, k;
  bool transpose_a, transpose_b;
  DType a, b, c;
  float alpha, beta;
  float a_scale = 1, b_scale = 1;
};

template <class T>
Tensor filled(Arena& arena, Shape shape, Random random, std::uint64_t stream) {
  constexpr DType dtype = std::is_same_v<T, float>  ? DType::f32
                          : std::is_same_v<T, bf16> ? DType::bf16
                          : std::is_same_v<T, f16>  ? DType::f16
                          : std::is_same_v<T, e4m3> ? DType::e4m3
                                                    : DType::e5m2;
  Tensor t = arena.make("x", dtype, shape);
  for (std::int64_t i = 0; i < t.count(); ++i) t.as<T>()[i] = narrow<T>(random.stream(stream).normal(std::uint64_t(i)));
  return t;
}
Tensor filled(Arena& arena, DType dtype, Shape shape, Random random, std::uint64_t stream) {
  if (dtype == DType::e4m3) return filled<e4m3>(arena, shape, random, stream);
  if (dtype == DType::e5m2) return filled<e5m2>(arena, shape, random, stream);
  return with_float(dtype, [&]<class T>() { return filled<T>(arena, shape, random, stream); });
}
double at(const Tensor& t, std::int64_t a, std::int64_t b, std::int64_t i, std::int64_t j) {
  return load_element(t.data, t.dtype, a * t.stride[0] + b * t.stride[1] + i * t.stride[2] + j * t.stride[3]);
}

void run(const Case& x, int threads) {
  Block block(64 << 20);
  Arena arena(block.data(), block.bytes());
  const Random random{7};
  Tensor a = x.transpose_a ? matmul::transposed(filled(arena, x.a, {x.batch, x.heads, x.k, x.m}, random, 1))
                           : filled(arena, x.a, {x.batch, x.heads, x.m, x.k}, random, 1);
  Tensor b = x.transpose_b ? matmul::transposed(filled(arena, x.b, {x.batch, x.heads, x.n, x.k}, random, 2))
                           : filled(arena, x.b, {x.batch, x.heads, x.k, x.n}, random, 2);
  Tensor wide = filled(arena, x.c, {x.batch, x.heads, x.m, x.n + 3}, random, 3);  // a margin that must stay
  Tensor c = matmul::part(wide, 3, 0, x.n);
  std::vector<double> before;
  for (std::int64_t i = 0; i < wide.count(); ++i) before.push_back(load_element(wide.data, wide.dtype, i));
  if (x.beta == 0)
    for (std::int64_t u = 0; u < x.batch * x.heads * x.m; ++u)
      for (std::int64_t j = 0; j < x.n; ++j)
        with_float(x.c, [&]<class T>() { wide.as<T>()[u * (x.n + 3) + j] = narrow<T>(std::numeric_limits<float>::quiet_NaN()); });
  Threads pool(threads);
  Context ctx{arena, cpu, &pool};
  Walk walk;
  ctx.walk = &walk;
  float a_scale = x.a_scale, b_scale = x.b_scale;
  matmul::Product product{.a = a, .b = b, .c = c, .alpha = x.alpha, .beta = x.beta};
  if (a_scale != 1) product.a.scale = Tensor(&a_scale, DType::f32, {1});
  if (b_scale != 1) product.b.scale = Tensor(&b_scale, DType::f32, {1});
  matmul::multiply(product, ctx);
  ASSERT_EQ(walk.steps.size(), 1u);
  EXPECT_EQ(walk.steps[0].cost.flops, 2.0 * double(x.batch * x.heads * x.m * x.n * x.k));
  const double unit = x.c == DType::f32 ? 0x1p-24 : x.c == DType::bf16 ? 0x1p-9 : 0x1p-12;
  for (std::int64_t u = 0; u < x.batch; ++u)
    for (std::int64_t v = 0; v < x.heads; ++v)
      for (std::int64_t i = 0; i < x.m; ++i)
        for (std::int64_t j = 0; j < x.n + 3; ++j) {
          const auto flat = std::size_t(((u * x.heads + v) * x.m + i) * (x.n + 3) + j);
          const double got = at(wide, u, v, i, j);
          if (j >= x.n) {
            ASSERT_EQ(got, before[flat]) << "the margin was written";
            continue;
          }
          double sum = 0, size = 0;
          for (std::int64_t l = 0; l < x.k; ++l) {
            const double term = at(a, u, v, i, l) * at(b, u, v, l, j);
            sum += term;
            size += std::abs(term);
          }
          const double old = x.beta == 0 ? 0 : double(x.beta) * before[flat];
          const double alpha = double(x.alpha) * double(a_scale) * double(b_scale), expected = alpha * sum + old;
          const double budget =
              2 * unit * std::abs(expected) + 0x1p-24 * (double(x.k) + 4) * (std::abs(alpha) * size + std::abs(old)) + 1e-7;
          ASSERT_NEAR(got, expected, budget) << i << "," << j << " of " << x.m << "x" << x.n << "x" << x.k;
        }
}

TEST(Matmul, AgreesWithFp64) {
  const auto f = DType::f32, h = DType::f16, b = DType::bf16;
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      for (DType in : {f, h, b})
        for (DType out : {f, in}) {
          run({1, 1, 7, 5, 3, ta, tb, in, in, out, 1, 0}, 1);
          run({2, 3, 17, 33, 300, ta, tb, in, in, out, -0.5f, 2}, 2);
          run({1, 2, 1, 9, 1, ta, tb, in, in, out, 1, 1}, 2);
          run({2, 1, 5, 1, 40, ta, tb, in, in, out, 1, 0}, 3);
        }
  run({1, 1, 300, 270, 64, false, true, f, f, f, 1, 0}, 2);
  run({1, 1, 300, 270, 64, true, false, b, b, f, 1, 1}, 2);
  run({1, 1, 20, 30, 40, false, false, f, b, f, 1, 0}, 2);
}

TEST(Matmul, EightBitOperandsAndScales) {
  const auto f = DType::f32, b = DType::bf16, v = DType::e4m3, g = DType::e5m2;
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      for (DType out : {f, b}) {
        run({1, 1, 17, 33, 300, ta, tb, v, v, out, 1, 0, 0.125f, 3}, 2);
        run({2, 1, 17, 33, 64, ta, tb, v, g, out, -0.5f, 2, 1, 0.3f}, 2);
        run({1, 1, 5, 9, 20, ta, tb, g, b, out, 1, 0, 7, 1}, 1);
      }
  run({1, 1, 70, 30, 40, false, true, f, f, f, 1, 1, 0.1f, 0.7f}, 2);
}

TEST(Matmul, ADeviceSaysWhichTypesItMultiplies) {
  const Device h200 = device_described("h200");
  const auto product = [](DType a, DType b, DType c) {
    return matmul::Product{.a = Tensor(nullptr, a, {2, 3}), .b = Tensor(nullptr, b, {3, 4}), .c = Tensor(nullptr, c, {2, 4})};
  };
  EXPECT_TRUE(matmul::supports(product(DType::bf16, DType::bf16, DType::f32), h200));
  EXPECT_TRUE(matmul::supports(product(DType::e4m3, DType::e5m2, DType::bf16), cpu));
  EXPECT_EQ(matmul::supports(product(DType::bf16, DType::f32, DType::f32), h200).why, "a GPU does not multiply bf16 by fp32 into fp32");
  EXPECT_EQ(matmul::supports(product(DType::e4m3, DType::e4m3, DType::bf16), h200).why,
            "a GPU multiplies fp8 where 16 divides every side; 2x3 times 3x4 was asked");
  EXPECT_EQ(matmul::supports(product(DType::f32, DType::f32, DType::e4m3), cpu).why, "the CPU does not multiply fp32 by fp32 into fp8");
  auto scaled = product(DType::bf16, DType::bf16, DType::f32);
  scaled.a.scale = Tensor(nullptr, DType::f32, {1});
  EXPECT_FALSE(matmul::supports(scaled, h200));
  Arena arena;
  Context ctx{arena, cpu};
  scaled.a.scale = Tensor(nullptr, DType::f32, {2});
  EXPECT_THROW(matmul::multiply(scaled, ctx), Error);
  EXPECT_THROW(matmul::multiply(product(DType::f32, DType::f32, DType::i32), ctx), Error);
}

// What cuBLASLt takes, asked where there is no card.
TEST(Matmul, ACardSaysWhichScalesItMultiplies) {
  using enum ScaleKind;
  const auto why = [](const char* device, ScaledFormat a, ScaledFormat b, bool contiguous_k = true) {
    constexpr std::int64_t m = 32, n = 48, k = 64;
    const Scaled left(Tensor(nullptr, a.dtype, {m, k}), Tensor(nullptr, DType::f32, scale_shape(a.scale, m, k)), a.scale),
        right(Tensor(nullptr, b.dtype, {n, k}), Tensor(nullptr, DType::f32, scale_shape(b.scale, n, k)), b.scale);
    matmul::Product p{
        .a = left, .b = matmul::transposed(right), .c = Tensor(nullptr, DType::bf16, {m, n}), .sums = matmul::Sums::two_level};
    if (!contiguous_k) p.b.values = Tensor(nullptr, b.dtype, {k, n});
    return matmul::supports(p, device_described(device)).why;
  };
  constexpr auto v = DType::e4m3, g = DType::e5m2;
  for (const auto& [ka, kb] : {std::pair{one, one}, {row, row}, {run, block}, {block, run}, {run, run}}) {
    EXPECT_EQ(why("h200", {v, ka}, {v, kb}), "");
    EXPECT_EQ(why("h200", {g, ka}, {v, kb}), "");
    EXPECT_NE(why("h200", {g, ka}, {g, kb}).find("not by e5m2"), std::string::npos);
    EXPECT_NE(why("a100", {v, ka}, {v, kb}).find("sm_80) multiplies no fp8; sm_89 and later do"), std::string::npos);
    EXPECT_NE(why("h200", {v, ka}, {v, kb}, false).find("summed dimension is contiguous"), std::string::npos);
  }
  for (const auto& [ka, kb] : {std::pair{one, row}, {row, run}, {block, block}, {block, one}})
    EXPECT_NE(why("h200", {v, ka}, {v, kb}).find("a GPU does not multiply scales by"), std::string::npos);
  EXPECT_EQ(why("rtx4090", {v, one}, {v, one}), "");
  EXPECT_NE(why("rtx4090", {v, run}, {v, block}).find("scales by 1x128 are Hopper's (sm_90)"), std::string::npos);
}

constexpr ScaleKind kinds[] = {ScaleKind::one, ScaleKind::row, ScaleKind::run, ScaleKind::block};

// Operands as a step makes them: one as it is, one transposed; each with scales of its own kind. The reference is FP64 over what is stored.
TEST(Matmul, EveryKindOfScaleAgreesWithFp64) {
  for (const ScaleKind ka : kinds)
    for (const ScaleKind kb : kinds)
      for (const matmul::Sums sums : {matmul::Sums::whole, matmul::Sums::two_level}) {
        if (sums == matmul::Sums::whole && (along_k(ka) || along_k(kb))) continue;
        for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{3, 5, 7}, {130, 270, 300}, {257, 129, 128}, {40, 9, 513}}) {
          Block block(64 << 20);
          Arena arena(block.data(), block.bytes());
          Threads pool(2);
          Context ctx{arena, cpu, &pool};
          const Tensor x = filled(arena, DType::f32, {m, k}, {1}, 1), w = filled(arena, DType::bf16, {k, n}, {1}, 2);
          for (std::int64_t i = 0; i < m; ++i) x.as<float>()[i * k] *= 50;  // so that scales differ
          const Scaled a = quantise::make("a", {DType::e4m3, ka}, m, k, ctx), b = quantise::make("b", {DType::e5m2, kb}, n, k, ctx);
          quantise::quantise({x, a}, ctx);
          quantise::quantise({w, {}, b}, ctx);
          const auto exact = matmul::reference(a, matmul::transposed(b), ctx);
          for (const DType type : {DType::f32, DType::bf16}) {
            const Tensor c = arena.make("c", type, {m, n}), add = filled(arena, type, {m, n}, {1}, 3);
            matmul::Product p{.a = a, .b = matmul::transposed(b), .c = c, .alpha = 0.5f, .beta = 2, .add = add, .sums = sums};
            matmul::multiply(p, ctx);
            const double unit = type == DType::f32 ? 0x1p-24 : 0x1p-9;
            for (std::int64_t i = 0; i < m * n; ++i) {
              const double old = 2 * load_element(add.data, type, i), expected = 0.5 * exact.value[std::size_t(i)] + old;
              ASSERT_NEAR(load_element(c.data, type, i), expected,
                          2 * unit * std::abs(expected) + 0x1p-24 * (double(k) + 8) * (exact.size[std::size_t(i)] + std::abs(old)))
                  << name_of(ka) << " by " << name_of(kb) << " at " << i << " of " << m << "x" << n << "x" << k;
            }
          }
        }
      }
}

TEST(Matmul, ScalesThatDoNotFitAreRefused) {
  Arena arena;
  Context ctx{arena, cpu};
  const Tensor a(nullptr, DType::e4m3, {4, 256}), b(nullptr, DType::e4m3, {256, 8}), c(nullptr, DType::bf16, {4, 8});
  const auto scales = [](Shape s) { return Tensor(nullptr, DType::f32, s); };
  using enum ScaleKind;
  const auto go = [&](Scaled x, matmul::Sums sums = matmul::Sums::two_level) {
    matmul::multiply({.a = x, .b = b, .c = c, .sums = sums}, ctx);
  };
  EXPECT_NO_THROW(go({a, scales({4}), row}));
  EXPECT_NO_THROW(go({a, scales({2, 4}), run}));
  EXPECT_NO_THROW(go({a, scales({1, 4}), block}));
  EXPECT_THROW(go({a, scales({8}), row}), Error);
  EXPECT_THROW(go({a, scales({2, 8}), run}), Error);
  EXPECT_THROW(go({a, scales({2, 4}), run}, matmul::Sums::whole), Error) << "such scales cannot be taken out of the sum";
  Context card{arena, device_described("h200")};
  EXPECT_THROW(matmul::multiply({.a = {a, scales({4}), row}, .b = b, .c = c}, card), Error) << "a card takes pairs of its own";
  const Tensor half(nullptr, DType::bf16, {4, 256});
  EXPECT_THROW(matmul::multiply({.a = {half, scales({1})}, .b = Tensor(nullptr, DType::bf16, {256, 8}), .c = c}, card), Error);
  EXPECT_THROW(matmul::multiply({.a = half, .b = b, .c = c, .adder = matmul::Adder::hopper}, ctx), Error) << "of fp8 alone";
}

// The published behaviour, by hand: 13 binary places below the largest exponent, cut towards zero.
TEST(Matmul, HoppersAdderCutsWhatLiesBelowThirteenPlaces) {
  using matmul::add_as_hopper;
  const auto sum = [](std::vector<float> a, std::vector<float> b, float before = 0) {
    return add_as_hopper(before, a.data(), b.data(), std::int64_t(a.size()), -6, -6);
  };
  EXPECT_EQ(sum({1, 0x1p-7f}, {1, 0x1p-6f}), 1 + 0x1p-13f) << "the last place that is kept";
  EXPECT_EQ(sum({1, 0x1p-7f, 0x1p-7f}, {1, 0x1p-7f, 0x1p-7f}), 1) << "each is cut before they are added";
  EXPECT_EQ(sum({1, -0x1p-7f}, {1, 0x1p-7f}), 1) << "towards zero";
  EXPECT_EQ(sum({448, 7.5f}, {1, 1}), 455.5f) << "both fit";
  EXPECT_EQ(sum({0x1p-6f}, {0x1p-6f}, 1), 1 + 0x1p-12f);
  EXPECT_EQ(sum({0x1p-6f}, {0x1p-6f}, 4), 4) << "2^-12 is below 13 places of 4";
  EXPECT_EQ(sum({1.875f, 1.875f}, {1.875f, 1.875f}), 2 * 1.875f * 1.875f);
  EXPECT_EQ(sum({}, {}, 3), 3);
  EXPECT_EQ(sum({0, 5}, {7, 0}, 0), 0);
  EXPECT_TRUE(std::isnan(sum({NAN}, {1})));
  EXPECT_EQ(sum({INFINITY}, {1}), INFINITY);
  std::vector<float> ones(32, 1.0f);
  float total = 0;
  for (int step = 0; step < 1024; ++step) total = sum(ones, ones, total);
  EXPECT_EQ(total, 16384) << "at 2^14 a product of 1 lies below the last place, and the sum stalls";
}

// Two levels keep what one level of fewer bits loses, and with FP32 below them both agree with FP64.
TEST(Matmul, TwoLevelSumsRepairHoppersAdder) {
  Block block(64 << 20);
  Arena arena(block.data(), block.bytes());
  Threads pool(2);
  Context ctx{arena, cpu, &pool};
  constexpr std::int64_t m = 40, n = 24, k = 8192;
  const Tensor x = filled(arena, DType::f32, {m, k}, {1}, 1), w = filled(arena, DType::f32, {n, k}, {1}, 2);
  for (const Tensor& t : {x, w})
    for (std::int64_t i = 0; i < t.count(); ++i) t.as<float>()[i] = std::abs(t.as<float>()[i]);  // sums that grow
  const Scaled a = quantise::make("a", {DType::e4m3, ScaleKind::one}, m, k, ctx),
               b = quantise::make("b", {DType::e4m3, ScaleKind::one}, n, k, ctx);
  quantise::quantise({x, a}, ctx);
  quantise::quantise({w, b}, ctx);
  const auto exact = matmul::reference(a, matmul::transposed(b), ctx);
  const auto error = [&](matmul::Sums sums, matmul::Adder adder) {
    const Tensor c = arena.make("c", DType::f32, {m, n});
    matmul::multiply({.a = a, .b = matmul::transposed(b), .c = c, .sums = sums, .adder = adder}, ctx);
    double worst = 0;
    for (std::int64_t i = 0; i < m * n; ++i) worst = std::max(worst, std::abs(double(c.as<float>()[i]) / exact.value[std::size_t(i)] - 1));
    return worst;
  };
  using enum matmul::Sums;
  using enum matmul::Adder;
  const double short_sums = error(whole, hopper), repaired = error(two_level, hopper);
  EXPECT_GT(short_sums, 3e-3);
  EXPECT_LT(repaired, short_sums / 10);
  EXPECT_LT(error(whole, fp32), 1e-5);
  EXPECT_LT(error(two_level, fp32), 1e-5);
}

TEST(Matmul, AnEmptySumIsZeroAndAnEmptyResultIsNothing) {
  for (DType t : {DType::f32, DType::bf16}) {
    run({2, 1, 4, 5, 0, false, false, t, t, t, 1, 0}, 2);
    run({2, 1, 4, 5, 0, false, true, t, t, t, 1, 3}, 2);
    run({0, 1, 4, 5, 6, false, false, t, t, t, 1, 0}, 2);
    run({1, 1, 0, 5, 6, false, false, t, t, t, 1, 0}, 2);
  }
}

TEST(Matmul, BitsDoNotDependOnThreads) {
  Block block(64 << 20);
  std::vector<float> first;
  for (int threads : {1, 2, 3, 7}) {
    Arena arena(block.data(), block.bytes());
    Tensor a = filled(arena, DType::f32, {700, 300}, {1}, 1), b = filled(arena, DType::f32, {300, 900}, {1}, 2),
           c = arena.make("c", DType::f32, {700, 900});
    Threads pool(threads);
    Context ctx{arena, cpu, &pool};
    matmul::multiply({a, b, c}, ctx);
    const std::vector<float> now(c.as<float>(), c.as<float>() + c.count());
    if (first.empty()) first = now;
    EXPECT_EQ(0, memcmp(first.data(), now.data(), now.size() * 4)) << threads << " threads";
  }
}

TEST(Matmul, ShapesThatDoNotFitAreRefused) {
  Arena arena;
  Context ctx{arena, cpu};
  const auto t = [](std::int64_t m, std::int64_t n) { return Tensor(nullptr, DType::f32, {m, n}); };
  EXPECT_THROW(matmul::multiply({t(2, 3), t(4, 5), t(2, 5)}, ctx), Error);
  EXPECT_THROW(matmul::multiply({t(2, 3), t(3, 5), t(5, 2)}, ctx), Error);
  EXPECT_THROW(matmul::multiply({t(2, 3), t(3, 5), matmul::transposed(t(5, 2))}, ctx), Error);
  EXPECT_THROW(matmul::multiply({t(2, 3), Tensor(nullptr, DType::f32, {1, 3, 5}), t(2, 5)}, ctx), Error);
}

}  // namespace
}  // namespace headroom
