#include "ops/rope/rope.h"

#include "tests/ops/on_devices.h"

namespace headroom::rope {
namespace {

using namespace on_card;

// q and k inside one matrix of q, k and v: `heads` of them, more heads behind them in each row.
Tensor packed(Tensor matrix, std::int64_t batch, std::int64_t len, std::int64_t heads, std::int64_t dim) {
  const auto row = matrix.stride[0];
  matrix.shape = {batch, len, heads, dim};
  matrix.stride = {len * row, row, dim, 1};
  return matrix;
}

struct Size {
  std::int64_t batch, len, heads, dim;
};

template <class Real>
std::vector<double> textbook(const std::vector<double>& x, const std::vector<double>& table, const Size& s, Turn turn, DType type) {
  auto out = x;
  const auto stored = [&](Real v) { return std::is_same_v<Real, double> ? double(v) : stored_as(type, double(v)); };
  for (std::int64_t row = 0; row < s.batch * s.len; ++row)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t i = 0; i < s.dim / 2; ++i) {
        const auto first = std::size_t((row * (s.heads + 2) + h) * s.dim + i), second = first + std::size_t(s.dim / 2);
        const auto at = std::size_t(row % s.len * s.dim + i);
        const Real u = Real(x[first]), v = Real(x[second]), cosine = Real(table[at]);
        const Real sine = Real(table[at + std::size_t(s.dim / 2)]) * Real(turn == Turn::forward ? 1 : -1);
        out[first] = stored(u * cosine - v * sine);
        out[second] = stored(v * cosine + u * sine);
      }
  return out;
}

class Rope : public OnDevices {
 protected:
  void check(DType type, const Size& s, Turn turn, std::int64_t shift = 0) {
    SCOPED_TRACE(fmt::format("{} batch {} len {} heads {} dim {} turn {} shift {}", name_of(type), s.batch, s.len, s.heads, s.dim,
                             int(turn), shift));
    Twin inputs(type, {s.batch * s.len, (s.heads + 2) * s.dim}, shift), table(DType::f32, {s.len + 3, s.dim});
    inputs.normal(1);
    run(Where::cpu, {&table}, [&](Context& ctx, const On& at) { fill(at(table), 10000, ctx); });
    const auto oracle = textbook<double>(inputs.values(), table.values(), s, turn, type);
    auto honest = textbook<float>(inputs.values(), table.values(), s, turn, type);
    for (Where where : devices()) {
      Twin x = inputs;
      run(where, {&x, &table},
          [&](Context& ctx, const On& at) { rotate(packed(at(x), s.batch, s.len, s.heads, s.dim), at(table), turn, ctx); });
      hold("x", x, honest, oracle, type);
    }
  }
};
HEADROOM_ON_DEVICES(Rope);

TEST_P(Rope, EveryTypeAndDimension) {
  for (DType type : float_types)
    for (Turn turn : {Turn::forward, Turn::back})
      for (std::int64_t dim : {2, 6, 16, 40, 64, 80, 128, 256}) {
        check(type, {2, 5, 3, dim}, turn);
        check(type, {1, 1, 1, dim}, turn);
        check(type, {3, 0, 2, dim}, turn);
        check(type, {1, 3, 71, dim}, turn, 1);
      }
}

TEST_P(Rope, TheTableIsTheCosineAndSineOfEveryPosition) {
  for (double theta : {10000.0, 1e6})
    for (Where where : devices()) {
      Twin table(DType::f32, {3000, 64});
      run(where, {&table}, [&](Context& ctx, const On& at) { fill(at(table), theta, ctx); });
      const auto values = table.values();
      std::size_t differ = 0;
      for (std::size_t position = 0; position < 3000; ++position)
        for (std::size_t i = 0; i < 32; ++i) {
          const double angle = double(position) * std::pow(theta, -double(i) / 32);
          const double cosine = values[position * 64 + i], sine = values[position * 64 + 32 + i];
          const double nearest_cosine = double(float(std::cos(angle))), nearest_sine = double(float(std::sin(angle)));
          ASSERT_NEAR(cosine, nearest_cosine, 0x1p-24) << position << " " << i;
          ASSERT_NEAR(sine, nearest_sine, 0x1p-24) << position << " " << i;
          differ += cosine != nearest_cosine;
          differ += sine != nearest_sine;
        }
      EXPECT_LE(differ, where == Where::cpu ? 0 : values.size() / 1000);
    }
}

TEST_P(Rope, TheFirstPositionStaysAndTurningBackRestores) {
  for (Where where : devices()) {
    Twin x(DType::f32, {6, 5 * 40}), table(DType::f32, {6, 40});
    x.normal(1);
    const auto before = x.values();
    std::vector<double> turned;
    run(where, {&x, &table}, [&](Context& ctx, const On& at) {
      fill(at(table), 10000, ctx);
      rotate(packed(at(x), 1, 6, 3, 40), at(table), Turn::forward, ctx);
    });
    turned = x.values();
    run(where, {&x, &table}, [&](Context& ctx, const On& at) { rotate(packed(at(x), 1, 6, 3, 40), at(table), Turn::back, ctx); });
    const auto after = x.values();
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (i < 200 || i % 200 >= 120) {  // the first position, and the heads behind those that are turned
        ASSERT_EQ(turned[i], before[i]) << i;
      }
      ASSERT_NEAR(after[i], before[i], 1e-5) << i;
    }
    EXPECT_GT(std::fabs(turned[200] - before[200]), 1e-3);
  }
}

// The bits of the sequences that the rows are of: a table in the rows' order gives the same.
TEST_P(Rope, RowsMayHavePositionsOfTheirOwn) {
  constexpr std::int64_t rows = 2 * 9, dim = 32;
  for (Where where : devices())
    for (DType type : float_types)
      for (Turn turn : {Turn::forward, Turn::back}) {
        Twin x(type, {rows, 5 * dim}), table(DType::f32, {6, dim}), positions(DType::i32, {rows}), in_order(DType::f32, {rows, dim});
        x.normal(1);
        run(Where::cpu, {&table}, [&](Context& ctx, const On& at) { fill(at(table), 10000, ctx); });
        for (std::int64_t row = 0; row < rows; ++row) {
          const auto position = row * 7 % 6;
          positions.here().as<std::int32_t>()[row] = std::int32_t(position);
          std::copy_n(table.here().as<float>() + position * dim, dim, in_order.here().as<float>() + row * dim);
        }
        Twin other = x;
        run(where, {&x, &table, &positions},
            [&](Context& ctx, const On& at) { rotate(packed(at(x), 2, 9, 3, dim), at(table), turn, ctx, at(positions)); });
        run(where, {&other, &in_order},
            [&](Context& ctx, const On& at) { rotate(packed(at(other), 1, rows, 3, dim), at(in_order), turn, ctx); });
        EXPECT_TRUE(x.bytes() == other.bytes());
      }
}

TEST_P(Rope, SameBitsEveryTime) {
  Twin x(DType::bf16, {64, 12 * 64}), table(DType::f32, {32, 64});
  x.normal(1);
  expect_same_bits({&x, &table}, [&](Context& ctx, const On& at) {
    fill(at(table), 10000, ctx);
    rotate(packed(at(x), 2, 32, 10, 64), at(table), Turn::forward, ctx);
  });
}

}  // namespace
}  // namespace headroom::rope
