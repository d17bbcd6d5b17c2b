// Attention in fp8 on a CPU: the emulation of Hopper's kernel against FP64, and how Q, K and V become 8 bits.
#include "tests/attention_fp8.h"

#include <limits>

#include "ops/attention/sampled/sampled.h"
#include "ops/quantise/encode.h"

namespace headroom::attention {
namespace {

using namespace fp8_cases;

const Variant& emulation() { return *variant_named("flash_fp8"); }

TEST(AttentionFp8, IsWhatRoundingExplains) {
  const Device cpu;
  Place place(cpu, 2);
  for (const Fp8Case& c : every_fp8_case({16, 40, 64})) {
    Fp8Result r = run_fp8(c, inputs_of(c), emulation(), place, cpu);
    judge_fp8(c, r);
  }
}

TEST(AttentionFp8, SameBitsForAnyNumberOfThreads) {
  const Device cpu;
  Place one(cpu, 1), three(cpu, 3);
  const Fp8Case c{.problem = fp8_problem(2, 1, 50, 120, 32, Mask::causal())};
  const Fp8Inputs in = inputs_of(c);
  const Fp8Result a = run_fp8(c, in, emulation(), one, cpu), b = run_fp8(c, in, emulation(), three, cpu);
  EXPECT_EQ(a.o, b.o);
  EXPECT_EQ(a.v8, b.v8);
  EXPECT_EQ(std::memcmp(a.lse.data(), b.lse.data(), a.lse.size() * 4), 0);
}

// The definition in words, element by element.
TEST(AttentionFp8, NumbersAreRoundedByTheLargestOfTheirHead) {
  const Device cpu;
  Place place(cpu, 2);
  const Fp8Case c{.problem = fp8_problem(2, 1, 7, 37, 24), .size = 3, .from = DType::f32};
  const Problem& p = c.problem;
  Fp8Inputs in = inputs_of(c);
  in.k[5] = std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < p.len_q * p.heads; i += p.heads)
    for (std::int64_t d = 0; d < p.head_dim; ++d) in.q[std::size_t(i * p.head_dim + d)] = 0;  // head 0 of batch 0
  const Fp8Result r = run_fp8(c, in, emulation(), place, cpu);
  EXPECT_EQ(r.q_scale[0], 1) << "a head of zeros";
  EXPECT_EQ(widen(e4m3{r.k8[5]}), 448) << "an infinity is the format's largest number";
  const auto check_rows = [](const std::vector<float>& x, const std::vector<std::uint8_t>& codes, const std::vector<float>& scale,
                             std::int64_t len, std::int64_t heads, std::int64_t dim) {
    std::vector<float> largest(scale.size(), 0.0f);
    const auto head_of = [&](std::size_t i) {
      return std::size_t(std::int64_t(i) / (len * heads * dim) * heads + std::int64_t(i) / dim % heads);
    };
    for (std::size_t i = 0; i < x.size(); ++i)
      if (std::isfinite(x[i])) largest[head_of(i)] = std::max(largest[head_of(i)], std::abs(x[i]));
    for (std::size_t h = 0; h < scale.size(); ++h)
      if (largest[h] > 0) { EXPECT_EQ(scale[h], largest[h] / 448); }
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(codes[i], narrow_saturating<e4m3>(x[i] * (1 / scale[head_of(i)])).bits) << i;
  };
  check_rows(in.q, r.q8, r.q_scale, p.len_q, p.heads, p.head_dim);
  check_rows(in.k, r.k8, r.k_scale, p.len_k, p.kv_heads, p.head_dim);
  const std::int64_t in_head = p.v_shape()[2] * p.v_shape()[3];
  std::vector<bool> there(r.v8.size(), false);
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t key = 0; key < p.len_k; ++key)
      for (std::int64_t d = 0; d < p.head_dim; ++d) {
        const auto at = std::size_t(b * in_head + value_at(key, d, p.head_dim));
        ASSERT_FALSE(there[at]);
        there[at] = true;
        EXPECT_EQ(r.v8[at],
                  narrow_saturating<e4m3>(in.v[std::size_t((b * p.len_k + key) * p.head_dim + d)] * (1 / r.v_scale[std::size_t(b)])).bits);
      }
  for (std::size_t i = 0; i < there.size(); ++i)
    if (!there[i]) { EXPECT_EQ(r.v8[i], 0) << "the place of a key that is not there"; }
}

TEST(AttentionFp8, PlacesOfKeysAreAPermutation) {
  for (int key = 0; key < 16; ++key) EXPECT_EQ(key_at_place(place_of_key(key)), key);
}

TEST(AttentionFp8, ANaNStaysInItsRowsAndNothingElseBecomesOne) {
  const Device cpu;
  Place place(cpu, 2);
  const Fp8Case c{.problem = fp8_problem(1, 1, 30, 30, 16, Mask::causal(), 1)};
  Fp8Inputs in = inputs_of(c);
  in.q[5 * 16 + 2] = std::numeric_limits<float>::quiet_NaN();
  in.q[9 * 16 + 2] = std::numeric_limits<float>::infinity();
  const Fp8Result r = run_fp8(c, in, emulation(), place, cpu);
  const std::vector<double> o = r.values();
  for (std::size_t i = 0; i < o.size(); ++i) EXPECT_EQ(std::isnan(o[i]), i / 16 == 5) << i;
}

TEST(AttentionFp8, NoKeysNoRowsAndRefusals) {
  const Device cpu;
  Place place(cpu, 1);
  for (const auto& [len_q, len_k] : {std::pair{4, 0}, {0, 4}, {0, 0}}) {
    const Fp8Case c{.problem = fp8_problem(2, 1, len_q, len_k, 16)};
    const Fp8Result r = run_fp8(c, inputs_of(c), emulation(), place, cpu);
    for (const double x : r.values()) EXPECT_EQ(x, 0);
    for (const float x : r.lse) EXPECT_EQ(x, -std::numeric_limits<float>::infinity());
  }
  Problem p = fp8_problem(1, 1, 8, 8, 16);
  EXPECT_EQ(emulation().supports(p, cpu, Pass::backward).why, "attention in fp8 has no backward: ask for forward alone (--pass forward)");
  p.softcap = 3;
  EXPECT_FALSE(emulation().supports(p, cpu, Pass::forward).ok);
  p.softcap = 0, p.precision = {DType::bf16};
  EXPECT_FALSE(emulation().supports(p, cpu, Pass::forward).ok);
  EXPECT_EQ(choose(p, cpu).name, "flash") << "bf16 does not become fp8 by itself";
}

TEST(AttentionFp8, TheSampledOracleReadsStoredNumbersAndCatchesAWrongOne) {
  const Device cpu;
  Place place(cpu, 2);
  const Fp8Case c{.problem = fp8_problem(4, 2, 30, 75, 32, Mask::causal())};
  const Problem& p = c.problem;
  Fp8Result r = run_fp8(c, inputs_of(c), emulation(), place, cpu);
  const Reference whole = exact_of(c, r);
  const Extras with{.q_scale = Tensor(r.q_scale.data(), DType::f32, {p.batch, p.heads}),
                    .k_scale = Tensor(r.k_scale.data(), DType::f32, {p.batch, p.kv_heads}),
                    .v_scale = Tensor(r.v_scale.data(), DType::f32, {p.batch, p.kv_heads})};
  Threads threads(2);
  const SampledOracle oracle(p, Tensor(r.q8.data(), DType::e4m3, p.q_shape()), Tensor(r.k8.data(), DType::e4m3, p.k_shape()),
                             Tensor(r.v8.data(), DType::e4m3, p.v_shape()), {}, threads, 1, head_in_memory, nullptr, with);
  std::vector<float> right(whole.o.begin(), whole.o.end()), lse(whole.lse.begin(), whole.lse.end());
  const auto judged = [&](Tensor o) { return oracle.judge(o, Tensor(lse.data(), DType::f32, p.lse_shape()), {}, {}, {}); };
  EXPECT_LE(judged(Tensor(right.data(), DType::f32, p.o_shape())).o.worst, 1e-3) << "both oracles read the same numbers";
  const Tensor o(r.o.data(), DType::bf16, p.o_shape());
  EXPECT_LE(judged(o).o.worst, 1);
  EXPECT_GT(judged(o).o.max_error, 0);
  r.o.back() = narrow<bf16>(widen(bf16{r.o.back()}) + 0.5f).bits;
  EXPECT_GT(judged(o).o.worst, 1);
  lse.back() += 0.2f;
  EXPECT_GT(judged(o).lse.worst, 1);
}

}  // namespace
}  // namespace headroom::attention
