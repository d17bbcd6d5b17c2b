#include "ops/matmul/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/convert.h"
#include "base/random.h"
#include "memory/block.h"

namespace headroom {
namespace {

const Device cpu;

struct Case {
  std::int64_t batch, heads, m, n, k;
  bool transpose_a, transpose_b;
  DType a, b, c;
  float alpha, beta;
};

template <class T>
Tensor filled(Arena& arena, Shape shape, Random random, std::uint64_t stream) {
  constexpr DType dtype = std::is_same_v<T, float> ? DType::f32 : std::is_same_v<T, bf16> ? DType::bf16 : DType::f16;
  Tensor t = arena.make("x", dtype, shape);
  for (std::int64_t i = 0; i < t.count(); ++i) t.as<T>()[i] = narrow<T>(random.stream(stream).normal(std::uint64_t(i)));
  return t;
}
Tensor filled(Arena& arena, DType dtype, Shape shape, Random random, std::uint64_t stream) {
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
  matmul::multiply({a, b, c, x.alpha, x.beta}, ctx);
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
            sum += term, size += std::abs(term);
          }
          const double old = x.beta == 0 ? 0 : double(x.beta) * before[flat];
          const double expected = double(x.alpha) * sum + old;
          const double budget =
              2 * unit * std::abs(expected) + 0x1p-24 * (double(x.k) + 4) * (std::abs(double(x.alpha)) * size + std::abs(old)) + 1e-7;
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
