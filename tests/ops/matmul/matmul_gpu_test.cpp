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
#include "ops/matmul/reference.h"
#include "ops/quantise/quantise.h"

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

// Magnitudes that change with the line and with every 128 of k, so that no two scales are alike: one read from a wrong place shows.
Tensor uneven(std::int64_t lines, std::int64_t k, std::uint64_t seed, Context& ctx) {
  const Tensor x = ctx.arena.make("x", DType::f32, {lines, k});
  const Random random{seed};
  for (std::int64_t i = 0; i < lines; ++i)
    for (std::int64_t l = 0; l < k; ++l) {
      const auto tile = std::uint64_t(i / 128 * 1000 + l / 128);
      const float size = std::exp2(4 * random.stream(5).uniform(tile) + 2 * random.stream(6).uniform(std::uint64_t(i) * 64 + tile) - 3);
      x.as<float>()[i * k + l] = size * random.normal(std::uint64_t(i * k + l));
    }
  return x;
}

// The largest error as a share of the sum of magnitudes, beyond the product's own rounding.
double worst(const std::vector<double>& got, const matmul::Exact& exact, const std::vector<double>& added, double unit) {
  double most = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double expected = exact.value[i] + added[i], error = std::abs(got[i] - expected) - unit * std::abs(expected);
    if (!(error <= most * (exact.size[i] + std::abs(added[i])))) most = error / (exact.size[i] + std::abs(added[i]));
    if (std::isnan(most)) break;
  }
  return most;
}

// Held to FP64 of the same stored numbers: at most twice the error of Hopper's adder as the CPU emulates it.
TEST_F(MatmulGpu, EightBitsWithEveryScaleAreNearFp64) {
  const Device card = cuda_device(0);
  if (card.sm / 10 != 9) GTEST_SKIP() << "needs Hopper";
  using enum ScaleKind;
  for (const auto& [ka, kb] : {std::pair{one, one}, {row, row}, {run, block}, {block, run}, {run, run}})
    for (const DType type_a : {DType::e4m3, DType::e5m2})
      for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{128, 256, 384}, {144, 272, 400}, {16, 16, 16}, {512, 48, 1040}})
        for (const auto& [type_c, beta, own] :
             {std::tuple{DType::bf16, 0.0f, false}, {DType::bf16, 1.0f, true}, {DType::f32, 0.0f, false}, {DType::f32, 1.0f, false}}) {
          SCOPED_TRACE(fmt::format("{} {} by {} {}, {}x{}x{} into {} beta {}", name_of(type_a), name_of(ka), name_of(DType::e4m3),
                                   name_of(kb), m, n, k, name_of(type_c), beta));
          Place host(Device{}, 2), place(card, 2);
          const PlaceMemory here = host.take(64u << 20), there = place.take(128u << 20);
          Arena arena(here.data(), here.bytes()), far(there.data(), there.bytes());
          const Device cpu;
          Context on_host{arena, cpu, &host.threads()}, on_card{far, card, &place.threads(), place.stream()};
          const Scaled a = quantise::make("a", {type_a, ka}, m, k, on_host), b = quantise::make("b", {DType::e4m3, kb}, n, k, on_host);
          quantise::quantise({uneven(m, k, 1, on_host), a}, on_host);
          quantise::quantise({uneven(n, k, 2, on_host), b}, on_host);
          const auto exact = matmul::reference(a, matmul::transposed(b), on_host);
          const auto sent = [&](const Tensor& t) {
            const Tensor copy = far.make("copy", t.dtype, t.shape);
            place.copy_in(copy.data, t.data, t.bytes());
            return copy;
          };
          const auto filled = [&](std::uint64_t seed) {
            const Tensor t = arena.make("c", type_c, {m, n});
            host.fill_normal(t, Random{seed}, 50);
            return t;
          };
          const Tensor c = filled(3), add = own ? filled(4) : Tensor();
          std::vector<double> added;
          for (std::int64_t i = 0; i < m * n; ++i) added.push_back(beta == 0 ? 0 : load_element((own ? add : c).data, type_c, i));
          const double unit = type_c == DType::f32 ? 0x1p-23 : 0x1p-8;
          matmul::Product p{.a = {sent(a.values), sent(a.scale), ka},
                            .b = matmul::transposed(Scaled(sent(b.values), sent(b.scale), kb)),
                            .c = sent(c),
                            .beta = beta,
                            .sums = matmul::Sums::two_level};
          if (own) p.add = sent(add);
          matmul::multiply(p, on_card);
          std::vector<char> bytes(c.bytes());
          place.copy_out(bytes.data(), p.c.data, bytes.size());
          std::vector<double> got, emulated;
          for (std::int64_t i = 0; i < m * n; ++i) got.push_back(load_element(bytes.data(), type_c, i));
          matmul::multiply({.a = a,
                            .b = matmul::transposed(b),
                            .c = c,
                            .beta = beta,
                            .add = add,
                            .sums = matmul::Sums::two_level,
                            .adder = matmul::Adder::hopper},
                           on_host);
          for (std::int64_t i = 0; i < m * n; ++i) emulated.push_back(load_element(c.data, type_c, i));
          const double honest = worst(emulated, exact, added, unit), of_card = worst(got, exact, added, unit);
          EXPECT_LE(of_card, 2 * honest + 0x1p-22) << "the emulation's is " << honest;
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
