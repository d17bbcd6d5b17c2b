// Products on a card against the CPU's: the same operands, every mixture of types that a step multiplies.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "base/convert.h"
#include "gpu/device.h"
#include "gpu/place.h"
#include "ops/matmul/matmul.h"

namespace headroom {
namespace {

struct Case {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b;
  DType operands, product;
  Math math;
  float beta;
  bool apart;  // beta multiplies another tensor
};

std::int64_t margin_of(const Case& x) { return x.apart ? 0 : 8; }

std::vector<double> run(const Case& x, const Device& device) {
  Place place(device, 2);
  const PlaceMemory memory = place.take(128u << 20);
  Arena arena(memory.data(), memory.bytes());
  Context ctx{arena, device, &place.threads(), place.stream()};
  const auto operand = [&](std::int64_t rows, std::int64_t columns, bool transposed, std::uint64_t seed) {
    const Tensor t = arena.make("x", x.operands, transposed ? Shape{columns, rows} : Shape{rows, columns});
    place.fill_normal(t, Random{seed});
    return transposed ? matmul::transposed(t) : t;
  };
  matmul::Product p;
  p.a = operand(x.m, x.k, x.transpose_a, 1), p.b = operand(x.k, x.n, x.transpose_b, 2);
  const std::int64_t width = x.n + margin_of(x);  // a margin that must stay
  const Tensor wide = arena.make("c", x.product, {x.m, width});
  place.fill_normal(wide, Random{3});
  p.c = matmul::part(wide, 1, 0, x.n);
  p.alpha = 0.5f, p.beta = x.beta, p.math = x.math;
  if (x.apart) {
    const Tensor other = arena.make("d", x.product, wide.shape);
    place.fill_normal(other, Random{4});
    p.add = matmul::part(other, 1, 0, x.n);
  }
  if (x.beta == 0) {  // what is not read may be anything
    std::vector<char> poison(wide.bytes(), char(0xff));
    place.copy_in(wide.data, poison.data(), poison.size());
  }
  matmul::multiply(p, ctx);
  std::vector<char> bytes(wide.bytes());
  place.copy_out(bytes.data(), wide.data, bytes.size());
  std::vector<double> values;
  for (std::int64_t i = 0; i < wide.count(); ++i) values.push_back(load_element(bytes.data(), x.product, i));
  return values;
}

class MatmulGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "needs a CUDA device";
  }
};

TEST_F(MatmulGpu, IsTheCpusProduct) {
  const Device card = cuda_device(0);
  constexpr auto f32 = DType::f32, b = DType::bf16, h = DType::f16;
  constexpr auto exact = Math::exact, tf32 = Math::tf32;
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{64, 128, 256}, {40, 97, 64}, {1, 8, 8}, {300, 24, 1000}})
    for (const Case& c : std::vector<Case>{{m, n, k, false, true, f32, f32, exact, 0, false},
                                           {m, n, k, true, false, f32, f32, exact, 1, false},
                                           {m, n, k, false, true, f32, f32, tf32, 0, false},
                                           {m, n, k, false, true, b, b, exact, 0, false},
                                           {m, n, k, false, true, b, b, exact, 1, true},
                                           {m, n, k, true, false, b, f32, exact, 0, false},
                                           {m, n, k, true, false, b, f32, exact, 1, false},
                                           {m, n, k, false, false, h, h, exact, 0, false},
                                           {m, n, k, true, false, h, f32, exact, 1, false}}) {
      SCOPED_TRACE(fmt::format("{}x{}x{} {} -> {} beta {}", m, n, k, name_of(Precision{c.operands, c.math}), name_of(c.product), c.beta));
      const auto expected = run(c, {}), got = run(c, card);
      // Sums of k products of size 1: the product's own rounding, and tf32's of the operands.
      const double unit = c.math == tf32 ? 0x1p-10 : c.product == b ? 0x1p-8 : c.product == h ? 0x1p-11 : 0x1p-20;
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n + margin_of(c); ++j) {
          const auto at = std::size_t(i * (n + margin_of(c)) + j);
          if (j >= n && c.beta == 0) continue;
          ASSERT_NEAR(got[at], expected[at], j < n ? unit * (std::abs(expected[at]) + std::sqrt(double(k))) : 0) << i << " " << j;
        }
    }
}

TEST_F(MatmulGpu, ItsWorkspaceIsCountedDry) {
  const Device card = device_described("h200");
  Arena dry;
  Context ctx{dry, card};
  const Tensor a(nullptr, DType::bf16, {64, 64});
  matmul::multiply({a, a, a}, ctx);
  EXPECT_EQ(dry.peak(), 32u << 20);
}

}  // namespace
}  // namespace headroom
