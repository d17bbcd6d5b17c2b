// Dropout: which probabilities are dropped, that every variant and tiling drops the same, results and gradients against the FP64 oracle under the
// same mask, statistics of the mask, and what is refused.
#include "ops/attention/dropout.h"

#include <map>
#include <set>

#include "tests/ops/attention/by_place.h"

namespace headroom::attention {
namespace {

using namespace cases;
using on_card::Where;

class AttentionDropout : public ByPlace {};
HEADROOM_ON_DEVICES(AttentionDropout);

TEST_P(AttentionDropout, EveryVariantAgreesWithTheOracle) {
  agree_with_the_oracle([](Precision precision, auto&& f) { each_dropout(precision, f); });
}

// With equal scores, values that are the unit vectors of their keys, and gradients that are those of their rows, O and dV are the mask.
TEST_P(AttentionDropout, EveryVariantDropsWhatTheDrawsSay) {
  for (Precision precision : precisions_by_place)
    for (auto [len_q, len_k] : {std::pair{256, 200}, {100, 256}, {37, 64}, {64, 61}, {128, 120}, {99, 128}})
      for (bool causal : {false, true}) {
        if (variants_of(precision) == 0) continue;
        Case c = plain_case(4, 4, len_q, len_k, 64, causal ? Mask::causal() : Mask::full(), precision, 7 + std::uint64_t(len_q));
        Problem& p = c.problem;
        p.dim_v = std::max(len_q, len_k);
        p.dropout = 0.4f;
        c.with_dlse = false;
        Tensors inputs = tensors_of(c);
        const auto unit_vectors = [&](Guarded& g) {
          g.each([&](std::int64_t flat, std::int64_t offset) {
            g.set(offset, flat % p.dim_v == flat / (p.dim_v * p.heads) % g.view().shape[1] ? 1.0f : 0.0f);
          });
        };
        inputs.q.each([&](std::int64_t, std::int64_t offset) { inputs.q.set(offset, 0); });
        unit_vectors(inputs.v);
        unit_vectors(inputs.d_o);
        const auto dropping = dropping_of(p, extras_of(inputs));
        const Band band = p.band();
        each_variant(c, inputs, [&](const Variant&, Tensors& x) {
          const auto o = x.o.values(), dv = x.dv.values();
          for (std::int64_t b = 0; b < p.batch; ++b)
            for (std::int64_t h = 0; h < p.heads; ++h)
              for (std::int64_t i = 0; i < p.len_q; ++i)
                for (std::int64_t j = 0; j < p.len_k; ++j) {
                  const bool kept = band.sees(i, j) && factor_of(dropping, b * p.heads + h, i, j) != 0;
                  ASSERT_EQ(o[std::size_t(((b * p.len_q + i) * p.heads + h) * p.dim_v + j)] != 0, kept) << i << " " << j;
                  ASSERT_EQ(dv[std::size_t(((b * p.len_k + j) * p.heads + h) * p.dim_v + i)] != 0, kept) << i << " " << j;
                }
        });
      }
}

TEST_P(AttentionDropout, TheSameSeedGivesTheSameBitsAndNoOtherDoes) {
  for (Precision precision : {precisions_by_place[0], precisions_by_place[1]}) {
    Case c = plain_case(4, 2, 150, 190, 64, Mask::causal(), precision, 11);
    c.problem.dropout = 0.1f;
    c.problem.deterministic = true;
    Tensors inputs = tensors_of(c);
    for (const Variant& v : variants()) {
      if (!serves(v, c.problem)) continue;
      SCOPED_TRACE(v.name);
      std::set<std::vector<std::byte>> seen;
      for (auto [seed, offset] :
           {std::pair<std::uint64_t, std::uint64_t>{5, 0}, {6, 0}, {5, 1}, {5ull << 32, 0}, {5, 1ull << 32}, {0, 5}}) {
        std::vector<std::vector<std::byte>> first;
        for (bool in_memory : {false, true})
          for (int workers : {1, 2, 3, 7}) {
            Threads pool(workers);
            Tensors x = inputs;
            x.drop_by(seed, offset, in_memory);
            run_here(v, c, x, &pool);
            const std::vector<std::vector<std::byte>> now{x.o.bytes(), x.lse.bytes(), x.dq.bytes(), x.dk.bytes(), x.dv.bytes()};
            if (first.empty()) first = now;
            ASSERT_TRUE(first == now) << "seed " << seed << " offset " << offset << " in memory " << in_memory;
          }
        EXPECT_TRUE(seen.insert(first[0]).second) << "seed " << seed << " offset " << offset << " drops as another";
      }
    }
  }
}

TEST_P(AttentionDropout, NoDropoutIsNoDropout) {  // seeds that a problem without dropout is given change nothing
  for (Precision precision : precisions_by_place) {
    Case c = plain_case(2, 1, 100, 120, 64, Mask::causal(), precision, 12);
    c.problem.deterministic = true;
    const Tensors inputs = tensors_of(c);
    Tensors seeded = inputs;
    seeded.drop_by(3, 4, false);
    std::map<std::string_view, std::vector<std::vector<std::byte>>> plain;
    const auto bits = [](Tensors& x) { return std::vector{x.o.bytes(), x.lse.bytes(), x.dq.bytes(), x.dk.bytes(), x.dv.bytes()}; };
    each_variant(c, inputs, [&](const Variant& v, Tensors& x) { plain[v.name] = bits(x); });
    each_variant(c, seeded, [&](const Variant& v, Tensors& x) { EXPECT_TRUE(plain[v.name] == bits(x)); });
  }
}

// The mean over seeds of each output is the output without dropout, within five standard errors of the mean square over all of them.
TEST_P(AttentionDropout, TheMeanOfTheOutputStays) {
  for (float dropout : {0.1f, 0.5f}) {
    Case c = plain_case(2, 2, 33, 70, 16, Mask::causal(), {DType::f32}, 13);
    Tensors inputs = tensors_of(c);
    const Reference without = reference(c.problem, inputs.q.view(), inputs.k.view(), inputs.v.view());
    c.problem.dropout = dropout;
    constexpr int seeds = 200;
    for (const Variant& v : variants()) {
      if (!serves(v, c.problem)) continue;
      std::vector<double> sum(without.o.size()), squares(without.o.size());
      for (int seed = 0; seed < seeds; ++seed) {
        Tensors x = inputs;
        x.drop_by(std::uint64_t(seed), 0, false);
        run_here(v, c, x, &threads);
        const auto o = x.o.values();
        for (std::size_t i = 0; i < o.size(); ++i) {
          sum[i] += o[i];
          squares[i] += o[i] * o[i];
        }
      }
      double chi2 = 0;
      int counted = 0;
      for (std::size_t i = 0; i < sum.size(); ++i) {
        const double mean = sum[i] / seeds, variance = (squares[i] / seeds - mean * mean) / (seeds - 1);
        if (variance < 1e-12) continue;
        chi2 += (mean - without.o[i]) * (mean - without.o[i]) / variance;
        ++counted;
      }
      EXPECT_GT(counted, int(sum.size() / 2));
      // Outputs of one row share its mask, 16 of them: so many fewer are independent.
      EXPECT_NEAR(chi2 / counted, 1, 5 * std::sqrt(2.0 * 16 / counted)) << v.name << " dropout " << dropout;
    }
  }
}

// ---- the draws themselves ----

TEST(AttentionDropoutDraws, PhiloxGivesItsAuthorsAnswers) {  // kat_vectors of Random123
  const auto is = [](FourWords x, std::initializer_list<std::uint32_t> right) { return std::equal(right.begin(), right.end(), x.word); };
  EXPECT_TRUE(is(philox(0, 0, {{0, 0, 0, 0}}), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_TRUE(is(philox(~0u, ~0u, {{~0u, ~0u, ~0u, ~0u}}), {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_TRUE(is(philox(0xa4093822, 0x299f31d0, {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}),
                 {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  const auto are = [](TwoWords x, std::uint32_t first, std::uint32_t second) { return x.word[0] == first && x.word[1] == second; };
  EXPECT_TRUE(are(philox_short(0, {{0, 0}}), 0x257a3673, 0xcd26be2a));
  EXPECT_TRUE(are(philox_short(~0u, {{~0u, ~0u}}), 0xab302c4d, 0x3dc9d239));
  EXPECT_TRUE(are(philox_short(0x13198a2e, {{0x243f6a88, 0x85a308d3}}), 0xbedbbe6b, 0xe4c770b3));
}

TEST(AttentionDropoutDraws, NoTwoPairsShareADraw) {  // each (head, row, key) has bits of its own in a counter of its own
  std::set<std::array<std::uint32_t, 4>> seen;
  for (std::uint32_t pair : {0u, 1u, 77u})
    for (std::uint32_t row = 0; row < 70; ++row)
      for (std::uint32_t key = 0; key < 100; ++key)
        EXPECT_TRUE(seen.insert({HeadDraws::place(key) * 2 + key / 8 % 2, HeadDraws::place(row), row / 8 % 2, pair}).second);
}

struct Kept {  // 1 where kept, of [pairs][rows][keys]
  std::size_t pairs, rows, keys;
  std::vector<char> at;
  Kept(std::uint64_t seed, std::uint64_t offset, float dropout, std::size_t heads, std::size_t len_q, std::size_t len_k)
      : pairs(heads), rows(len_q), keys(len_k), at(heads * len_q * len_k) {
    Problem p;
    p.dropout = dropout;
    Extras with;
    with.seed = seed;
    with.offset = offset;
    const Dropping d = *dropping_of(p, with);
    std::vector<float> row(keys);
    for (std::size_t h = 0; h < pairs; ++h)
      for (std::size_t i = 0; i < rows; ++i) {
        dropout_factors(d, std::int64_t(h), std::int64_t(i), 0, std::int64_t(keys), 1, row.data());
        for (std::size_t j = 0; j < keys; ++j) at[(h * rows + i) * keys + j] = row[j] != 0;
      }
  }
};

// In standard deviations: how far the kept are from their share, and two sequences of them from being independent.
double off_rate(const Kept& k, double p) {
  double kept = 0;
  for (char x : k.at) kept += x;
  const double n = double(k.at.size());
  return (kept - n * (1 - p)) / std::sqrt(n * p * (1 - p));
}
double off_independence(const Kept& a, const Kept& b, std::size_t shift_a, double p) {
  double sum = 0;
  const std::size_t n = a.at.size() - shift_a;
  for (std::size_t i = 0; i < n; ++i) sum += (double(a.at[i + shift_a]) - (1 - p)) * (double(b.at[i]) - (1 - p));
  return sum / (std::sqrt(double(n)) * p * (1 - p));
}

TEST(AttentionDropoutDraws, RatesAndIndependence) {
  for (float dropout : {0.1f, 0.5f, 0.9f}) {
    const double p = std::lround(double(dropout) * 32768) / 32768.0;
    const std::size_t heads = 8, len = 256, row = len, head = len * len;
    const Kept base(42, 7, dropout, heads, len, len);
    EXPECT_LT(std::abs(off_rate(base, p)), 4.5) << dropout;
    for (std::size_t shift : {std::size_t(1), std::size_t(2), std::size_t(8), std::size_t(16), std::size_t(32), row, row + 1, 2 * row,
                              8 * row, 16 * row, head, head + row + 1, 2 * head})
      EXPECT_LT(std::abs(off_independence(base, base, shift, p)), 4.5) << "positions " << shift << " apart, dropout " << dropout;
    for (auto [seed, offset] : {std::pair<std::uint64_t, std::uint64_t>{43, 7},
                                {42, 8},
                                {42, 6},
                                {42ull << 32, 7},
                                {42 + (1ull << 32), 7},
                                {42, 7 + (1ull << 32)},
                                {7, 42},
                                {~42ull, 7}}) {
      const Kept other(seed, offset, dropout, heads, len, len);
      EXPECT_LT(std::abs(off_rate(other, p)), 4.5) << seed << " " << offset;
      EXPECT_LT(std::abs(off_independence(base, other, 0, p)), 4.5) << seed << " " << offset;
    }
    // Counts of rows, of columns and of heads are spread as independent draws are: the sum of squares of n of them.
    const auto spread = [&](std::size_t groups, auto&& of) {
      std::vector<double> count(groups), all(groups);
      for (std::size_t i = 0; i < base.at.size(); ++i) count[of(i)] += base.at[i], ++all[of(i)];
      double chi2 = 0;
      for (std::size_t g = 0; g < groups; ++g) chi2 += std::pow(count[g] - all[g] * (1 - p), 2) / (all[g] * p * (1 - p));
      return (chi2 - double(groups)) / std::sqrt(2.0 * double(groups));
    };
    EXPECT_LT(std::abs(spread(heads * len, [&](std::size_t i) { return i / len; })), 4.5) << "rows";
    EXPECT_LT(std::abs(spread(heads * len, [&](std::size_t i) { return i / head * len + i % len; })), 4.5) << "columns";
    EXPECT_LT(std::abs(spread(heads, [&](std::size_t i) { return i / head; })), 4.5) << "heads";
    EXPECT_LT(std::abs(spread(64, [&](std::size_t i) { return i / row % 8 * 8 + i % 8; })), 4.5) << "places in a tile";
  }
}

// ---- what is refused, and which variant serves what ----

TEST(AttentionDropoutDraws, WrongChancesAreRefused) {
  Problem p = problem_of(2, 2, 8, 8, 8);
  for (float wrong : {1.0f, 1.5f, -0.1f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    p.dropout = wrong;
    EXPECT_THROW(check(p), Error) << wrong;
  }
  p.dropout = 0.5f;
  EXPECT_NO_THROW(check(p));
  EXPECT_EQ(choose(p, {}).name, "flash");
  p.precision.dtype = DType::bf16;
  EXPECT_EQ(choose(p, {}, "plain").name, "plain");
}

TEST(AttentionDropoutDraws, OnAGpuTheNextRowServesWhatHoppersDoesNot) {
  Device hopper;
  hopper.kind = DeviceKind::cuda;
  hopper.sm = 90;
  Problem p = problem_of(2, 2, 128, 128, 64, Mask::causal(), DType::bf16);
  p.dropout = 0.1f;
  EXPECT_EQ(choose(p, hopper).name, "flash_sm90");
  EXPECT_EQ(variant_named("plain_cuda")->supports(p, hopper, Pass::forward).why, "dropout is not served");
  const auto next = [&](const Problem& asked, const char* why) {
    EXPECT_EQ(choose(asked, hopper).name, "flash_sm80") << why;
    EXPECT_EQ(variant_named("flash_sm90")->supports(asked, hopper, Pass::backward).why, why);
  };
  const auto with = [&](auto&& change) {
    Problem other = p;
    change(other);
    return other;
  };
  next(with([](Problem& q) { q.head_dim = 256; }), "serves dropout and ALiBi up to head dim 128");
  next(with([](Problem& q) { q.softcap = 30; }), "serves dropout and ALiBi without a cap or packed documents");
  next(with([](Problem& q) { q.documents = 3; }), "serves dropout and ALiBi without a cap or packed documents");
  next(with([](Problem& q) { q.alibi = true; }), "serves dropout or ALiBi, not both");
  next(with([](Problem& q) { q.dropout = 0.97f; }), "serves dropout up to 0.96875, it is 0.97");
  next(with([](Problem& q) { q.deterministic = true; }), "sums dQ of dropout and ALiBi in no fixed order");
  p.len_q = 1;  // what flash_decode would take
  EXPECT_EQ(variant_named("flash_decode")->supports(p, hopper, Pass::forward).why, "dropout is not served");
  p.precision.dtype = DType::f32;
  EXPECT_EQ(choose(p, hopper).name, "flash_simt");
}

TEST(AttentionDropoutDraws, TheOracleAgreesWithFiniteDifferences) {
  Case c = plain_case(2, 1, 5, 6, 3, Mask::causal(), {DType::f32}, 63);
  c.problem.dropout = 0.4f;
  c.problem.sink = true;
  expect_gradients_by_finite_differences(c);
}

}  // namespace
}  // namespace headroom::attention
