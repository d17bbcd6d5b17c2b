// Every attention variant of this machine against the FP64 oracle: cases that hurt, and thousands of random small ones.
#include <cstdlib>

#include "tests/attention_run.h"

namespace headroom::attention {
namespace {

using namespace cases;

void check_case(const Case& c, Threads* pool) {
  for (const Variant& v : variants()) {
    if (!serves(v, c.problem)) continue;
    SCOPED_TRACE(v.name);
    Tensors x = tensors_of(c);
    run(v, c, x, pool);
    judge(c, x, v.family == "plain");
  }
}

TEST(AttentionOracle, EveryMaskAndTypeAndLayout) {
  Threads pool(2);
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (Mask mask : {Mask::full(), Mask::causal(), Mask::causal(Align::top_left), Mask::sliding(1), Mask::sliding(70),
                      Mask::sliding(9, Align::top_left)})
      for (Layout layout : {Layout::rows, Layout::heads_first, Layout::padded}) {
        check_case({problem_of(2, 1, 97, 97, 24, mask, dtype), layout, Values::normal, layout == Layout::padded, 3}, &pool);
        check_case({problem_of(1, 1, 65, 130, 16, mask, dtype), layout, Values::normal, true, 4}, &pool);
        check_case({problem_of(1, 1, 130, 33, 16, mask, dtype), layout, Values::normal, false, 5}, &pool);
      }
}

TEST(AttentionOracle, LengthsThatNoTileDivides) {
  Threads pool(2);
  for (Mask mask : {Mask::full(), Mask::causal()})
    for (std::int64_t len : {1, 2, 31, 32, 33, 63, 64, 65, 127, 129, 257})
      check_case({problem_of(1, 1, len, len, 20, mask), Layout::rows, Values::normal, true, std::uint64_t(len)}, &pool);
}

TEST(AttentionOracle, EveryHeadDimension) {
  Threads pool(2);
  for (std::int64_t dim = 1; dim <= 256; dim += dim < 36 ? 1 : 11)
    check_case({problem_of(1, 1, 37, 41, dim, Mask::causal(), dim % 3 ? DType::f32 : DType::bf16), Layout::rows, Values::normal, true,
                std::uint64_t(dim)},
               &pool);
  for (std::int64_t dim : {64, 96, 128, 192, 256})
    check_case({problem_of(2, 2, 80, 80, dim), Layout::rows, Values::normal, true, 6}, &pool);
}

TEST(AttentionOracle, NothingToAttend) {
  Threads pool(2);
  for (DType dtype : {DType::f32, DType::bf16})
    for (auto [lq, lk] : {std::pair{0, 0}, {0, 5}, {5, 0}, {1, 1}, {1, 0}, {0, 1}, {1, 200}, {200, 1}})
      for (Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(3)})
        check_case({problem_of(2, 1, lq, lk, 8, mask, dtype), Layout::rows, Values::normal, true, 9}, &pool);
  Problem none = problem_of(1, 1, 4, 4, 8);
  none.batch = 0;
  check_case({none}, &pool);
}

TEST(AttentionOracle, FullyMaskedRowsAreZeroAndMinusInfinity) {
  const Case c{problem_of(1, 1, 90, 20, 16, Mask::causal()), Layout::rows, Values::normal, true, 2};  // rows 0 … 69 see nothing
  for (const Variant& v : variants()) {
    if (!serves(v, c.problem)) continue;
    Tensors x = tensors_of(c);
    run(v, c, x, nullptr);
    const auto o = x.o.values(), lse = x.lse.values(), dq = x.dq.values();
    for (std::size_t i = 0; i < 70 * 16; ++i) ASSERT_TRUE(o[i] == 0 && dq[i] == 0) << v.name;
    for (std::size_t i = 0; i < 70; ++i) ASSERT_EQ(lse[i], -std::numeric_limits<double>::infinity()) << v.name;
    ASSERT_TRUE(std::isfinite(lse[70])) << v.name;
  }
}

TEST(AttentionOracle, ScoresFarAboveAndBelow) {
  Threads pool(2);
  for (Values values : {Values::one_hot, Values::far_above, Values::far_below})
    for (Mask mask : {Mask::full(), Mask::causal()}) {
      const Case c{problem_of(1, 1, 150, 150, 32, mask), Layout::rows, values, true, 8};
      check_case(c, &pool);
      if (values == Values::one_hot) continue;
      Tensors x = tensors_of(c);
      run(*variant_named("flash"), c, x, nullptr);
      for (double lse : x.lse.values()) ASSERT_TRUE(values == Values::far_above ? lse > 200 : lse < -200) << lse;
    }
}

// HEADROOM_CASE=<seed> runs one configuration; HEADROOM_CASES=<count> another number of them.
TEST(AttentionOracle, RandomConfigurations) {
  Threads pool(2);
  const char *one = std::getenv("HEADROOM_CASE"), *many = std::getenv("HEADROOM_CASES");
  const std::uint64_t first = one ? std::strtoull(one, nullptr, 10) : 1, count = one ? 1 : many ? std::strtoull(many, nullptr, 10) : 2000;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Case c = random_case(seed);
    check_case(c, seed % 2 ? &pool : nullptr);
    ASSERT_FALSE(HasFailure()) << "rerun with HEADROOM_CASE=" << seed << ": " << in_words(c);
  }
}

}  // namespace
}  // namespace headroom::attention
