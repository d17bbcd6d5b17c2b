// Windows on both sides, soft capping, sinks, packed documents, values of another dimension, caches in pages: every variant of the CPU against the
// FP64 oracle, and the oracle against finite differences and definitions.
#include "tests/attention_features.h"

#include <optional>

#include "ops/attention/sampled/sampled.h"
#include "tests/attention_run.h"

namespace headroom::attention {
namespace {

using namespace cases;

int check_feature(const Case& c, Threads* pool) {
  int served = 0;
  std::optional<Expected> expected;
  for (const Variant& v : variants()) {
    if (!serves_forward(v, c.problem)) continue;
    SCOPED_TRACE(v.name);
    Tensors x = tensors_of(c);
    run(v, c, x, pool);
    if (!expected) expected = expected_of(c, x, v.family == "plain");
    expect_rounding(*expected, c, x, v.family == "plain");
    judge(c, x, *expected, serves(v, c.problem));
    ++served;
  }
  return served;
}

TEST(AttentionFeatures, EveryVariantAgreesWithTheOracle) {
  Threads pool(2);
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    int at = 0;
    each_feature({dtype}, [&](const Case& c) {
      if (dtype == DType::f32 || at++ % 2 == (dtype == DType::bf16)) {  // 16 bits: half of them each
        EXPECT_EQ(check_feature(c, &pool), 2);
      }
    });
  }
}

TEST(AttentionFeatures, ACacheOfAnyLengthInAnyPages) {
  Threads pool(2);
  for (DType dtype : {DType::f32, DType::bf16}) {
    int at = 0;
    each_cache({dtype}, [&](const Case& c) {
      if (at++ % 2 == (dtype == DType::bf16)) { EXPECT_EQ(check_feature(c, &pool), c.problem.page ? 1 : 2) << in_words(c); }
    });
  }
}

TEST(AttentionFeatures, KeysOf576AndValuesOf512) {
  Threads pool(2);
  Case c = plain_case(4, 1, 9, 150, 576, Mask::causal(), {DType::bf16}, 60);
  c.problem.dim_v = 512;
  EXPECT_EQ(check_feature(c, &pool), 2);
}

TEST(AttentionFeatures, TenThousandDocuments) {
  std::vector<int> lengths;
  for (int d = 0; d < 10'000; ++d) lengths.push_back(d % 3);
  Case c = packed(plain_case(1, 1, 0, 0, 8, Mask::causal(), {DType::f32}, 61), lengths, lengths);
  c.problem.batch = 1;
  Threads pool(2);
  const Variant& v = *variant_named("flash");
  Tensors x = tensors_of(c);
  run(v, c, x, &pool);
  judge(c, x, false);
}

// Lists of what rows and keys see, against the definition, with borders and lengths at random.
TEST(AttentionDocuments, ListsAgreeWithTheDefinition) {
  for (std::uint64_t seed = 1; seed < 60; ++seed) {
    Case c = random_case(seed);
    const Random r{seed};
    std::vector<int> q, k;
    for (std::uint64_t d = 0; d < 1 + r.below(1, 7); ++d) {
      q.push_back(int(r.below(10 + d, 9)));
      k.push_back(int(r.below(30 + d, 9)));
    }
    c = packed(c, q, k, std::int64_t(seed % 3));
    const Problem& p = c.problem;
    Tensors x = tensors_of(c);
    const HostLists lists(p, extras_of(x));
    double visible = 0;
    for (std::int64_t b = 0; b < p.batch; ++b) {
      const auto document_of = [&](const std::vector<int>& lengths, std::int64_t at) {  // which, and where in it
        for (std::size_t d = 0; d < lengths.size(); ++d) {
          const int length = lengths[(d + std::size_t(b)) % lengths.size()];
          if (at < length) return std::pair{int(d), at};
          at -= length;
        }
        return std::pair{-1, std::int64_t(0)};
      };
      const Band band = lists.band(b);
      for (std::int64_t i = 0; i < p.len_q; ++i)
        for (std::int64_t j = 0; j < p.len_k; ++j) {
          const auto [dq, row] = document_of(q, i);
          const auto [dk, key] = document_of(k, j);
          bool sees = dq >= 0 && dq == dk;
          if (sees) {
            const auto at = (std::size_t(dq) + std::size_t(b)) % q.size();
            sees = band_of(p.mask, q[at], k[at]).sees(row, key);
          }
          visible += sees;
          ASSERT_EQ(band.sees(i, j), sees) << in_words(c) << " batch " << b << " row " << i << " key " << j;
          ASSERT_EQ(i >= band.first_row(j) && i < band.last_row(j), sees) << in_words(c) << " batch " << b << " row " << i << " key " << j;
        }
      for (std::int64_t i = 1; i < p.len_q; ++i)  // what tiles rely on
        ASSERT_TRUE(band.first(i) >= band.first(i - 1) && band.last(i) >= band.last(i - 1)) << in_words(c);
    }
    EXPECT_EQ(lists.visible(), visible);
  }
}

// One new row against a cache: of its keys and values those that the window lets be seen are read.
TEST(AttentionCost, OfAWindowIsThatOfTheKeysSeen) {
  Problem p{.batch = 3, .heads = 4, .kv_heads = 2, .len_q = 1, .len_k = 1000, .head_dim = 64};
  p.mask = Mask{MaskKind::window, {}, 100};
  Problem as_long = p;
  as_long.len_k = 100;
  EXPECT_DOUBLE_EQ(forward_cost(p).bytes, forward_cost(as_long).bytes);
  p.mask = Mask{MaskKind::causal};
  EXPECT_GT(forward_cost(p).bytes, 9 * forward_cost(as_long).bytes);
  p.len_q = p.len_k = as_long.len_q = as_long.len_k = 1000;  // every key is seen by some row
  EXPECT_DOUBLE_EQ(forward_cost(p).bytes, forward_cost(as_long).bytes);
}

// Lists that are no borders: nothing is read or written outside, and the result is undefined.
TEST(AttentionDocuments, WrongBordersStayInside) {
  Case c = packed(plain_case(2, 1, 0, 0, 16, Mask::causal(), {DType::f32}, 62), {40, 30, 20}, {20, 30, 40});
  for (const Variant& v : variants()) {
    if (!serves(v, c.problem)) continue;
    Tensors x = tensors_of(c);
    const std::int32_t wrong[] = {70, -5, 1 << 30, 12, 0, 90, 3, 1 << 20};
    for (std::int64_t i = 0; i < 8; ++i) {
      x.cu_q.set_int(i, wrong[i]);
      x.cu_k.set_int(7 - i, wrong[i]);
    }
    run(v, c, x, nullptr);
    for (Guarded* g : x.all()) EXPECT_TRUE(g->guards_intact()) << v.name;
  }
}

// The oracle's gradients against finite differences: everything at once.
TEST(AttentionFeatures, TheOracleAgreesWithFiniteDifferences) {
  Case c = packed(plain_case(2, 1, 0, 0, 3, Mask::sliding(3, Align::bottom_right, 1), {DType::f32}, 63), {3, 2}, {4, 2});
  c.problem.batch = 1;
  c.problem.dim_v = 2;
  c.problem.softcap = 1.5f;
  c.problem.sink = true;
  expect_gradients_by_finite_differences(c);
}

// P is formed again from an LSE of 24 bits; where scores are so large that this says little, it is still a probability.
TEST(AttentionHugeScores, ProbabilitiesAreNoMoreThanOne) {
  for (float reach : {1e4f, 1e6f, 1e8f, 1e12f})
    for (auto [len_q, len_k] : {std::pair{1, 90}, {1, 3}, {70, 70}})
      for (Mask mask : {Mask::full(), Mask::causal()}) {
        Case c = plain_case(3, 3, len_q, len_k, 16, mask, {DType::f32}, 70);
        c.values = Values::huge;
        c.reach = reach;
        c.with_dlse = false;
        for (const Variant& v : variants()) {
          if (!serves(v, c.problem)) continue;
          Tensors x = tensors_of(c);
          run(v, c, x, nullptr);
          for (Guarded* g : {&x.o, &x.lse, &x.dq, &x.dk, &x.dv})
            for (double value : g->values()) ASSERT_TRUE(std::isfinite(value)) << v.name << " " << in_words(c) << " scores to " << reach;
          const auto dv = x.dv.values(), d_o = x.d_o.values();
          const Problem& p = c.problem;
          for (std::int64_t b = 0; b < p.batch; ++b)
            for (std::int64_t h = 0; h < p.heads; ++h)
              for (std::int64_t d = 0; d < p.head_dim; ++d) {
                double most = 0;  // what a key could get if every row saw it alone
                for (std::int64_t i = 0; i < p.len_q; ++i)
                  most += std::abs(d_o[std::size_t(((b * p.len_q + i) * p.heads + h) * p.head_dim + d)]);
                for (std::int64_t j = 0; j < p.len_k; ++j)
                  ASSERT_LE(std::abs(dv[std::size_t(((b * p.len_k + j) * p.heads + h) * p.head_dim + d)]), most * (1 + 1e-5))
                      << v.name << " " << in_words(c) << " scores to " << reach;
              }
        }
      }
}

// A large scale makes large scores. Flash's weights are then off by a factor of e^±δ, where δ is how far the score and the LSE may be
// rounded, and at most 1; dV is a sum of such weights. docs/numerics.md cites the table that this prints.
TEST(AttentionHugeScores, AScaleCostsFlashTheDigitsOfItsLse) {
  std::puts("     scale  largest score  plain dV  flash dV  bound");
  for (float scale : {1.0f, 1e2f, 1e4f, 1e5f, 1e6f, 1e7f, 1e8f, 1e10f, 1e30f}) {
    Case c = plain_case(2, 2, 128, 128, 64, Mask::causal(), {DType::f32}, 72);
    c.problem.scale = scale;
    c.with_dlse = false;
    double largest = 0, off[2] = {0, 0};
    for (const Variant& v : variants()) {
      if (!serves(v, c.problem)) continue;
      Tensors x = tensors_of(c);
      run(v, c, x, nullptr);
      const Reference exact = reference(c.problem, x.q.view(), x.k.view(), x.v.view(), x.d_o.view(), {});
      for (const double lse : exact.lse) largest = std::max(largest, std::abs(lse));
      for (Guarded* g : {&x.o, &x.lse, &x.dq, &x.dk, &x.dv})
        for (double value : g->values()) ASSERT_TRUE(std::isfinite(value)) << v.name << " with a scale of " << scale;
      const auto dv = x.dv.values();
      double wrong = 0, all = 0;
      for (std::size_t i = 0; i < dv.size(); ++i) wrong += std::pow(dv[i] - exact.dv[i], 2), all += exact.dv[i] * exact.dv[i];
      off[v.family == "flash"] = std::max(off[v.family == "flash"], std::sqrt(wrong / all));
    }
    const double bound = 1 - std::exp(-largest * 0x1p-24);
    std::printf("%10.0e %14.1e %9.1e %9.1e %6.1e\n", double(scale), largest, off[0], off[1], bound);
    EXPECT_LE(off[1], 2 * off[0] + bound + 1e-5) << scale;
    EXPECT_LE(off[0], 1e-2) << scale;
  }
}

TEST(AttentionFeatures, TheSampledOracleKnowsThemAll) {
  Threads pool(2);
  int judged = 0;
  const auto check = [&](const Case& c) {
    for (const Variant& v : variants()) {
      if (!serves_forward(v, c.problem)) continue;
      const bool gradients = serves(v, c.problem);
      Tensors x = tensors_of(c);
      run(v, c, x, nullptr);
      if (std::any_of(c.sinks.begin(), c.sinks.end(), [](float s) { return std::isinf(s); })) continue;
      const SampledOracle oracle(c.problem, x.q.view(), x.k.view(), x.v.view(), gradients ? x.d_o.view() : Tensor(), pool, 5,
                                 head_in_memory, nullptr, extras_of(x));
      const auto judge_them = [&] {
        return oracle.judge(x.o.view(), x.lse.view(), gradients ? x.dq.view() : Tensor(), {}, gradients ? x.dv.view() : Tensor());
      };
      const Verdict right = judge_them();
      for (const Judged& j : {right.o, right.lse, right.dv}) EXPECT_LE(j.worst, 1) << v.name << " " << in_words(c);
      if (!c.with_dlse) { EXPECT_LE(right.dq.worst, 1) << v.name << " " << in_words(c); }
      if (x.o.view().count() == 0) continue;
      x.o.set(x.o.view().count() - 1, 3e3f);  // the last row and head, which are always judged
      EXPECT_GT(judge_them().o.worst, 1) << v.name << " " << in_words(c);
      ++judged;
    }
  };
  each_feature({DType::f32}, [&](Case c) {
    c.with_dlse = false;
    check(c);
  });
  each_cache({DType::f32}, check);
  EXPECT_GT(judged, 50);
}

TEST(AttentionFeatures, SupportSaysWhatIsNotServed) {
  Problem p = problem_of(2, 2, 4, 64, 8);
  p.page = 16;
  p.pages = 12;
  for (const Variant& v : variants()) EXPECT_FALSE(v.supports(p, cpu, Pass::backward).ok) << v.name;
  EXPECT_EQ(choose(p, cpu, "", Pass::forward).name, "flash");
  EXPECT_THROW(choose(p, cpu, "plain", Pass::forward), Error);
}

// FLOPs count what is visible.
TEST(AttentionFeatures, FlopsCountVisiblePairs) {
  Problem p = problem_of(2, 2, 10, 10, 8, Mask::causal());
  EXPECT_EQ(forward_flops(p), 4.0 * 8 * 4 * 55);
  EXPECT_EQ(backward_flops(p), 2.5 * forward_flops(p));
  p.dim_v = 4;
  EXPECT_EQ(forward_flops(p), 2.0 * 12 * 4 * 55);
  p.mask = Mask::sliding(1, Align::bottom_right, 2);
  EXPECT_EQ(forward_flops(p), 2.0 * 12 * 4 * 27);
  p.documents = 3;
  p.visible_in_documents = 7;
  EXPECT_EQ(forward_flops(p), 2.0 * 12 * 4 * 7);
}

}  // namespace
}  // namespace headroom::attention
