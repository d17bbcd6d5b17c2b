// Slopes of ALiBi: results and gradients of every variant against the FP64 oracle, the oracle against the definition, caches, and what is refused.
#include "ops/attention/alibi.h"

#include "ops/attention/sampled/sampled.h"
#include "tests/ops/attention/by_place.h"

namespace headroom::attention {
namespace {

using namespace cases;
using on_card::Where;

class AttentionAlibi : public ByPlace {};
HEADROOM_ON_DEVICES(AttentionAlibi);

TEST_P(AttentionAlibi, EveryVariantAgreesWithTheOracle) {
  agree_with_the_oracle([](Precision precision, auto&& f) { each_alibi(precision, f); });
}

TEST_P(AttentionAlibi, ACacheOfAnyLengthInAnyPages) {
  for (Precision precision : precisions_by_place) {
    if (variants_of(precision) == 0) continue;
    int at = 0;
    each_cache(precision, [&](Case c) {
      if (GetParam() == Where::cpu && at++ % 4 != int(precision.dtype)) return;  // a quarter each
      c.problem.alibi = true;
      Tensors inputs = tensors_of(c);
      const Expected naive = expected_of(c, inputs, true);
      const int served = each_variant(
          c, inputs, [&](const Variant&, Tensors& x) { judge(c, x, naive, false); }, Pass::forward);
      EXPECT_EQ(served, c.problem.page && GetParam() == Where::cpu ? 1 : variants_of(c.problem, Pass::forward)) << in_words(c);
    });
  }
}

// Scores of 0 and slopes of ln 2: a key's probability halves with each position that it is away.
TEST_P(AttentionAlibi, ScoresFallWithTheDistance) {
  for (Mask mask : {Mask::full(), Mask::causal(), Mask::causal(Align::top_left)})
    for (auto [len_q, len_k] : {std::pair{5, 9}, {9, 5}, {70, 70}}) {
      Case c = plain_case(1, 1, len_q, len_k, 16, mask, {DType::f32}, 116);
      Problem& p = c.problem;
      p.alibi = true;
      p.dim_v = len_k;
      c.with_dlse = false;
      Tensors inputs = tensors_of(c);
      inputs.alibi.set(0, std::log(2.0f));
      inputs.q.each([&](std::int64_t, std::int64_t offset) { inputs.q.set(offset, 0); });
      inputs.v.each(
          [&](std::int64_t flat, std::int64_t offset) { inputs.v.set(offset, flat % len_k == flat / len_k % len_k ? 1.0f : 0.0f); });
      const Band band = p.band();
      const int ahead = mask.align == Align::bottom_right ? len_k - len_q : 0;
      each_variant(c, inputs, [&](const Variant&, Tensors& x) {
        const auto o = x.o.values();
        for (int i = 0; i < len_q; ++i) {
          double sum = 0;
          for (int j = 0; j < len_k; ++j) sum += band.sees(i, j) ? std::exp2(-std::abs(i + ahead - j)) : 0;
          for (int j = 0; j < len_k && sum > 0; ++j)
            ASSERT_NEAR(o[std::size_t(i * len_k + j)], band.sees(i, j) ? std::exp2(-std::abs(i + ahead - j)) / sum : 0, 1e-6)
                << i << " " << j;
        }
      });
    }
}

// What lies behind a document's end may be anything: rows that met a NaN there are computed again, and fall as they did.
TEST_P(AttentionAlibi, RowsThatMetANeighboursNanAreMended) {
  Case c = packed(plain_case(4, 2, 0, 0, 64, Mask::causal(), {DType::bf16}, 117), {33, 40, 17}, {33, 40, 17});
  c.problem.alibi = true;
  c.problem.softcap = 4;
  c.slopes_rank = 3;
  Tensors inputs = tensors_of(c);
  const auto clean = expected_of(c, inputs, true);
  const std::int64_t first = 33, last = 73,
                     width = c.problem.kv_heads * c.problem.head_dim;  // the second document's keys, of the first row of the batch
  for (std::int64_t n = first * width; n < last * width; ++n) inputs.v.set(n, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(each_variant(c, inputs,
                         [&](const Variant&, Tensors& x) {
                           const auto o = x.o.values(), dq = x.dq.values();
                           const auto row = std::size_t(c.problem.heads * c.problem.head_dim);
                           for (std::size_t i = 0; i < 90; ++i)
                             for (std::size_t d = 0; d < row; ++d) {
                               if (i >= 33 && i < 73) continue;
                               ASSERT_NEAR(o[i * row + d], clean.exact.o[i * row + d], 0.05) << i;
                               ASSERT_NEAR(dq[i * row + d], clean.exact.dq[i * row + d], 0.1) << i;
                             }
                         }),
            variants_of(c.problem.precision));
}

TEST(AttentionAlibiAlone, TheOracleAgreesWithFiniteDifferences) {
  Case c = packed(plain_case(2, 1, 0, 0, 3, Mask::sliding(3, Align::bottom_right, 1), {DType::f32}, 118), {3, 2}, {4, 2});
  c.problem.batch = 1;
  c.problem.softcap = 1.5f;
  c.problem.sink = true;
  c.problem.alibi = true;
  expect_gradients_by_finite_differences(c);
}

TEST(AttentionAlibiAlone, TheSampledOracleKnowsIt) {
  Threads pool(2);
  int judged = 0;
  each_alibi({DType::f32}, [&](Case c) {
    c.with_dlse = false;
    Tensors x = tensors_of(c);
    run(*variant_named("flash"), c, x, &pool);
    const SampledOracle oracle(c.problem, x.q.view(), x.k.view(), x.v.view(), x.d_o.view(), pool, 5, head_in_memory, nullptr, extras_of(x));
    const Verdict v = oracle.judge(x.o.view(), x.lse.view(), x.dq.view(), x.dk.view(), x.dv.view());
    for (const auto& [name, j] : {std::pair{"o", v.o}, {"lse", v.lse}, {"dq", v.dq}, {"dk", v.dk}, {"dv", v.dv}})
      EXPECT_LE(j.worst, 1) << name << " of " << in_words(c) << ", error " << j.max_error;
    ++judged;
  });
  EXPECT_GT(judged, 30);
}

TEST(AttentionAlibiAlone, SlopesOfAnotherShapeAreRefused) {
  Case c = plain_case(4, 2, 8, 8, 16, Mask::causal(), {DType::f32}, 119);
  c.problem.alibi = true;
  const Variant& flash = *variant_named("flash");
  for (const Shape& wrong : {Shape{2}, Shape{2, 2}, Shape{4, 2}, Shape{1, 4}, Shape{2, 1, 4}}) {
    Tensors x = tensors_of(c);
    x.alibi = Guarded(DType::f32, wrong);
    EXPECT_THROW(run(flash, c, x, nullptr), Error) << wrong.rank;
  }
  Tensors none = tensors_of(c);
  none.alibi = {};
  EXPECT_THROW(run(flash, c, none, nullptr), Error);
}

TEST(AttentionAlibiAlone, OnAGpuHoppersKernelsOrTheNextRowServeIt) {
  Device hopper;
  hopper.kind = DeviceKind::cuda;
  hopper.sm = 90;
  Problem p = problem_of(2, 2, 128, 128, 64, Mask::causal(), DType::bf16);
  p.alibi = true;
  EXPECT_EQ(choose(p, hopper).name, "flash_sm90");
  p.head_dim = 136;
  EXPECT_EQ(choose(p, hopper).name, "flash_sm80");
  p.precision.dtype = DType::f32;
  EXPECT_EQ(choose(p, hopper).name, "flash_simt");
}

}  // namespace
}  // namespace headroom::attention
