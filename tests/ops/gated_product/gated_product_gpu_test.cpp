// On Hopper: a product with SwiGLU beside it against matmul and swiglu of the same card.
#include "ops/gated_product/gated_product.h"
#include "ops/matmul/matmul.h"
#include "ops/swiglu/swiglu.h"
#include "tests/ops/on_card.h"

namespace headroom::gated_product {
namespace {

using namespace on_card;

struct Layer {
  Twin x, w, dy, down, gate_up, act, dgate_up, again;
  explicit Layer(const Sizes& s)
      : x(DType::bf16, {s.rows, s.terms}),
        w(DType::bf16, {2 * s.width, s.terms}),
        dy(DType::bf16, {s.rows, s.terms}),
        down(DType::bf16, {s.terms, s.width}),
        gate_up(DType::bf16, {s.rows, 2 * s.width}),
        act(DType::bf16, {s.rows, s.width}),
        dgate_up(gate_up),
        again(act) {}
  std::vector<Twin*> factors() { return {&x, &w, &dy, &down}; }
  std::vector<Twin*> results() { return {&gate_up, &act, &dgate_up, &again}; }
};

class GatedProductGpu : public on_card::OnCard {
 protected:
  void SetUp() override {
    on_card::OnCard::SetUp();
    if (IsSkipped()) return;
    if (const Support s = supports({4096, 1280, 5120}, DType::bf16, device); !s.ok) GTEST_SKIP() << s.why;
  }
  // Both passes; backward from the same gate and up, which lie in dgate_up's place.
  void run(Layer& l, bool as_one, bool with_again) {
    for (Twin* t : l.factors()) t->up(*stream);
    for (Twin* t : l.results()) t->up(*stream);
    const Sizes s{l.x.here().shape[0], l.x.here().shape[1], l.act.here().shape[1]};
    on_gpu([&](Context& ctx) {
      const Tensor again = with_again ? l.again.there() : Tensor();
      if (as_one) {
        forward({.x = l.x.there(), .w = l.w.there(), .gate_up = l.gate_up.there(), .act = l.act.there()}, ctx);
        forward({.x = l.x.there(), .w = l.w.there(), .gate_up = l.dgate_up.there()}, ctx);
        backward({.dy = l.dy.there(), .w = l.down.there(), .gate_up = l.dgate_up.there(), .act = again}, ctx);
        return;
      }
      const matmul::Product gate_up{.a = l.x.there(), .b = matmul::transposed(l.w.there()), .c = l.gate_up.there()};
      matmul::multiply(gate_up, ctx);
      matmul::Product same = gate_up;
      same.c = l.dgate_up.there();
      matmul::multiply(same, ctx);
      swiglu::forward({l.gate_up.there(), l.act.there()}, ctx);
      const Tensor dact = ctx.arena.make("dact", DType::bf16, {s.rows, s.width});
      matmul::multiply({l.dy.there(), l.down.there(), dact}, ctx);
      swiglu::backward({l.dgate_up.there(), dact, l.dgate_up.there(), again}, ctx);
    });
    for (Twin* t : l.results()) {
      t->down(*stream);
      EXPECT_TRUE(t->guards_intact()) << "written outside a tensor";
    }
  }
};

// Whole numbers, scaled: every sum is exact in any order, so gate, up and dact are the same whichever kernel adds, and so is all that follows.
void whole_numbers(Twin& t, std::uint64_t seed, float scale) {
  const Random random{seed};
  for (std::int64_t i = 0; i < t.here().count(); ++i) t.set(i, scale * float(int(random.normal(std::uint64_t(i)) * 2)));
}

// Every size cuts its last tiles but the first; several need more than one round of tiles, and sums that no stage divides.
TEST_F(GatedProductGpu, IsTheTwoOpsToTheBitWhereSumsAreExact) {
  for (const Sizes& s : {Sizes{2048, 256, 4096},
                         {2000, 200, 2568},
                         {4096, 72, 1800},
                         {2049, 8, 2440},
                         {300, 264, 17416},
                         {5000, 520, 1032},
                         {9000, 8, 4104}})
    for (const bool with_again : {false, true}) {
      SCOPED_TRACE(fmt::format("{} x {} x {}, again {}", s.rows, s.terms, s.width, with_again));
      Layer one(s);
      whole_numbers(one.x, 1, 0.25f), whole_numbers(one.w, 2, 0.0625f), whole_numbers(one.dy, 3, 0.5f), whole_numbers(one.down, 4, 0.125f);
      Layer two = one;
      run(one, true, with_again), run(two, false, with_again);
      EXPECT_EQ(one.gate_up.bytes(), two.gate_up.bytes());
      EXPECT_EQ(one.act.bytes(), two.act.bytes());
      EXPECT_EQ(one.dgate_up.bytes(), two.dgate_up.bytes());
      EXPECT_EQ(one.again.bytes(), two.again.bytes());
      if (with_again) { EXPECT_EQ(one.again.bytes(), one.act.bytes()) << "act again is act"; }
    }
}

// Of rows at both ends against FP64: at most twice what cuBLASLt's sums lie from it.
TEST_F(GatedProductGpu, SumsAreAsNearAsMatmuls) {
  const Sizes s{2056, 1000, 2312};
  Layer one(s);
  one.x.normal(1), one.w.normal(2, 0.05), one.dy.normal(3), one.down.normal(4, 0.05);
  Layer two = one;
  run(one, true, false), run(two, false, false);
  const auto x = one.x.values(), w = one.w.values(), got = one.gate_up.values(), honest = two.gate_up.values();
  std::vector<double> exact, ours, theirs;
  for (const std::int64_t row : {std::int64_t(0), std::int64_t(127), s.rows - 1})
    for (std::int64_t column = 0; column < 2 * s.width; ++column) {
      double sum = 0;
      for (std::int64_t k = 0; k < s.terms; ++k) sum += x[std::size_t(row * s.terms + k)] * w[std::size_t(column * s.terms + k)];
      exact.push_back(sum);
      ours.push_back(got[std::size_t(row * 2 * s.width + column)]), theirs.push_back(honest[std::size_t(row * 2 * s.width + column)]);
    }
  expect_honest("gate_up", ours, theirs, exact, DType::bf16);
  const auto gradient = one.dgate_up.values();
  EXPECT_LE(worst_error(gradient, two.dgate_up.values()), 0.05) << "a neighbour of dact moves its gradients by 2⁻⁷ of them";
}

TEST_F(GatedProductGpu, RepeatsBitForBit) {
  const Sizes s{4096, 328, 2568};
  Layer first(s);
  first.x.normal(1), first.w.normal(2, 0.1), first.dy.normal(3), first.down.normal(4, 0.1);
  const Layer before = first;
  run(first, true, true);
  for (int turn = 0; turn < 5; ++turn) {
    Layer again = before;
    run(again, true, true);
    EXPECT_EQ(again.gate_up.bytes(), first.gate_up.bytes());
    EXPECT_EQ(again.act.bytes(), first.act.bytes());
    EXPECT_EQ(again.dgate_up.bytes(), first.dgate_up.bytes());
  }
}

}  // namespace
}  // namespace headroom::gated_product
