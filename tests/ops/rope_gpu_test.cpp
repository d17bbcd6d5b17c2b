#include "ops/rope/rope.h"

#include "tests/ops/on_card.h"

namespace headroom::rope {
namespace {

using namespace on_card;

// q and k as they lie in one matrix of q, k and v: `heads` of them, `more` heads of v behind them in each row.
Tensor packed(Tensor matrix, std::int64_t batch, std::int64_t len, std::int64_t heads, std::int64_t dim) {
  const auto row = matrix.stride[0];
  matrix.shape = {batch, len, heads, dim};
  matrix.stride = {len * row, row, dim, 1};
  return matrix;
}

class RopeGpu : public OnCard {
 protected:
  void check(DType type, std::int64_t batch, std::int64_t len, std::int64_t heads, std::int64_t dim, Turn turn, std::int64_t shift = 0) {
    SCOPED_TRACE(
        fmt::format("{} batch {} len {} heads {} dim {} turn {} shift {}", name_of(type), batch, len, heads, dim, int(turn), shift));
    Twin x(type, {batch * len, (heads + 2) * dim}, shift), table(DType::f32, {len + 3, dim});
    x.normal(1);
    on_cpu([&](Context& ctx) { fill(table.here(), 10000, ctx); });
    auto oracle = x.values();
    const auto t = table.values();
    for (std::int64_t row = 0; row < batch * len; ++row)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < dim / 2; ++i) {
          double& u = oracle[std::size_t((row * (heads + 2) + h) * dim + i)];
          double& v = oracle[std::size_t((row * (heads + 2) + h) * dim + dim / 2 + i)];
          const double c = t[std::size_t(row % len * dim + i)], sign = turn == Turn::forward ? 1 : -1;
          const double s = sign * t[std::size_t(row % len * dim + dim / 2 + i)], first = u * c - v * s, second = v * c + u * s;
          u = first, v = second;
        }
    Twin gpu = x;
    on_cpu([&](Context& ctx) { rotate(packed(x.here(), batch, len, heads, dim), table.here(), turn, ctx); });
    up({&gpu, &table});
    on_gpu([&](Context& ctx) { rotate(packed(gpu.there(), batch, len, heads, dim), table.there(), turn, ctx); });
    down({&gpu, &table});
    expect_honest("x", gpu.values(), x.values(), oracle, type);
  }
};

TEST_F(RopeGpu, EveryTypeAndDimension) {
  for (DType type : float_types)
    for (Turn turn : {Turn::forward, Turn::back})
      for (std::int64_t dim : {2, 6, 16, 40, 64, 80, 128, 256}) {
        check(type, 2, 5, 3, dim, turn);
        check(type, 1, 1, 1, dim, turn);
        check(type, 3, 0, 2, dim, turn);
        check(type, 1, 3, 71, dim, turn, 1);
      }
}

TEST_F(RopeGpu, TheTableIsTheCpusButForALastBit) {
  Twin cpu(DType::f32, {3000, 64}), gpu(DType::f32, {3000, 64});
  on_cpu([&](Context& ctx) { fill(cpu.here(), 10000, ctx); });
  up({&gpu});
  on_gpu([&](Context& ctx) { fill(gpu.there(), 10000, ctx); });
  down({&gpu});
  const auto a = cpu.values(), b = gpu.values();
  std::size_t differ = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    differ += a[i] != b[i];
    ASSERT_NEAR(a[i], b[i], 0x1p-24);
  }
  EXPECT_LE(differ, a.size() / 1000);
}

TEST_F(RopeGpu, SameBitsEveryTimeAndInAGraph) {
  Twin x(DType::bf16, {64, 12 * 64}), table(DType::f32, {32, 64});
  x.normal(1);
  const auto before = x.bytes();
  expect_same_bits(
      [&](Context& ctx) {
        fill(table.there(), 10000, ctx);
        rotate(packed(x.there(), 2, 32, 10, 64), table.there(), Turn::forward, ctx);
      },
      [&] {
        x.bytes() = before, up({&x, &table});
      },
      {&x, &table});
}

}  // namespace
}  // namespace headroom::rope
