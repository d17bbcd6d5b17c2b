// AdamW with moments in 16 and in 8 bits: a step is the textbook's, and every way of cutting a weight gives the same bits.
#include "ops/adamw/moments.h"
#include "ops/copy/split.h"
#include "ops/gradient_sum/gradient_sum.h"
#include "tests/ops/on_devices.h"

namespace headroom::adamw {
namespace {

using namespace on_card;

struct Weight {
  Twin grad, master, copy, rest, m, v, m_scale, v_scale, state{DType::f64, {state_size}};
  std::uint32_t parameter = 3;

  Weight(std::int64_t n, DType moments, DType compute, bool halves, DType of_grad, std::int64_t shift = 0)
      : grad(of_grad, {n}, shift), m(moments, {n}), v(moments, {n}) {
    grad.normal(1);
    for (Twin* t : {&m, &v}) zero(*t);
    if (moments == DType::u8) {
      m_scale = Twin(DType::f32, {ceil_div(n, moments_block)}), v_scale = m_scale;
      for (Twin* t : {&m_scale, &v_scale}) zero(*t);
    }
    if (compute != DType::f32) copy = Twin(compute, {n});
    Twin weight(DType::f32, {n});
    weight.normal(2);
    if (!halves) {
      master = weight;
      return;
    }
    rest = Twin(DType::u16, {n});
    for (std::int64_t i = 0; i < n; ++i) {
      const auto h = copy::split(weight.here().as<float>()[i]);
      copy.here().as<bf16>()[i] = h.upper, rest.here().as<std::uint16_t>()[i] = h.rest;
    }
  }
  static std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
  static void zero(Twin& t) { std::memset(t.here().data, 0, t.here().bytes()); }

  // Elements [first, first + n), as a rank that owns them has them.
  Update update(const On& at, std::int64_t first = 0, std::int64_t n = -1) {
    if (n < 0) n = grad.here().count() - first;
    const auto run = [&](Twin& t, std::int64_t per = 1) {
      if (!t) return Tensor();
      const Tensor whole = at(t);
      return Tensor(whole.as<char>() + first / per * std::int64_t(size_of(whole.dtype)), whole.dtype, {ceil_div(n, per)});
    };
    return {.grad = run(grad),
            .master = run(master),
            .m = run(m),
            .v = run(v),
            .copy = run(copy),
            .rest = run(rest),
            .m_scale = run(m_scale, moments_block),
            .v_scale = run(v_scale, moments_block),
            .parameter = parameter,
            .first = first};
  }
  std::vector<Twin*> all() { return {&grad, &master, &copy, &rest, &m, &v, &m_scale, &v_scale, &state}; }
  std::vector<Twin*> updated() { return {&master, &copy, &rest, &m, &v, &m_scale, &v_scale}; }
  bool same(Weight& other) {
    const auto mine = updated(), theirs = other.updated();
    for (std::size_t i = 0; i < mine.size(); ++i)
      if (mine[i]->bytes() != theirs[i]->bytes()) return false;
    return true;
  }
  double weight(std::int64_t i) {
    return double(rest ? copy::join({copy.here().as<bf16>()[i], rest.here().as<std::uint16_t>()[i]}) : master.here().as<float>()[i]);
  }
  std::pair<double, double> moments(std::int64_t i) {
    if (m.here().dtype == DType::f32) return {double(m.here().as<float>()[i]), double(v.here().as<float>()[i])};
    if (m.here().dtype == DType::bf16) return {double(widen(m.here().as<bf16>()[i])), double(widen(v.here().as<bf16>()[i]))};
    const auto b = i / moments_block;
    return {double(FirstMoment::value(m.here().as<std::uint8_t>()[i], m_scale.here().as<float>()[b])),
            double(SecondMoment::value(v.here().as<std::uint8_t>()[i], v_scale.here().as<float>()[b]))};
  }
};

struct Way {
  DType moments, compute;
  bool halves;
  DType grad;
};
std::vector<Way> ways() {
  std::vector<Way> all;
  for (DType moments : {DType::bf16, DType::u8}) {
    all.push_back({moments, DType::f32, false, DType::f32});
    all.push_back({moments, DType::f16, false, DType::f16});
    for (bool halves : {false, true})
      for (DType grad : {DType::f32, DType::bf16}) all.push_back({moments, DType::bf16, halves, grad});
  }
  return all;
}
std::string words(const Way& w) {
  return fmt::format("moments {} weights {}{} gradients {}", name_of(w.moments), name_of(w.compute), w.halves ? " halves" : "",
                     name_of(w.grad));
}

constexpr Hyper hyper{.clip = 0};

class AdamwMoments : public OnDevices {
 protected:
  void begin_at(Where where, Weight& w, std::uint64_t seed = 11) {
    run(where, w.all(), [&](Context& ctx, const On& at) {
      start(at(w.state), 1, ctx), set_rate(at(w.state), 1e-2, ctx), set_seed(at(w.state), seed, ctx);
    });
  }
  void step(Where where, Weight& w, const std::vector<std::int64_t>& cuts = {0}, const Hyper& of = hyper) {
    run(where, w.all(), [&](Context& ctx, const On& at) {
      const Tensor numbers = begin(at(w.state), of, ctx);
      std::vector<Update> all;
      for (std::size_t i = 0; i < cuts.size(); ++i) all.push_back(w.update(at, cuts[i], i + 1 < cuts.size() ? cuts[i + 1] - cuts[i] : -1));
      advance(all, numbers, ctx);
    });
  }
};
HEADROOM_ON_DEVICES(AdamwMoments);

// From what is stored, a step is the textbook's; and what is stored after it is a neighbour of the textbook's moments.
TEST_P(AdamwMoments, AStepFromWhatIsStoredIsTheTextbooks) {
  for (const Way& way : ways()) {
    SCOPED_TRACE(words(way));
    const std::int64_t n = 5003;
    for (Where where : devices()) {
      Weight w(n, way.moments, way.compute, way.halves, way.grad, way.grad == DType::f16 ? 1 : 0);
      begin_at(where, w);
      const auto g = w.grad.values();
      for (int t = 1; t <= 4; ++t) {
        std::vector<double> before, m, v;
        for (std::int64_t i = 0; i < n; ++i) {
          before.push_back(w.weight(i));
          const auto [first, second] = w.moments(i);
          m.push_back(0.9 * first + 0.1 * g[std::size_t(i)]);
          v.push_back(0.95 * second + 0.05 * g[std::size_t(i)] * g[std::size_t(i)]);
        }
        step(where, w);
        const double of_m = way.moments == DType::bf16 ? 0x1p-7 : 0x1p-3;
        double drift = 0;
        for (std::int64_t i = 0; i < n; ++i) {
          const auto at = std::size_t(i);
          const double change = 1e-2 * m[at] / (1 - std::pow(0.9, t)) / (std::sqrt(v[at] / (1 - std::pow(0.95, t))) + 1e-8);
          const double exact = before[at] * (1 - 1e-2 * 0.1) - change;
          ASSERT_NEAR(w.weight(i), exact, 4e-7 * std::fabs(before[at]) + 4e-6 * std::fabs(change)) << i;
          if (w.copy && !way.halves) {
            ASSERT_NEAR(load_element(w.copy.here().data, way.compute, i), exact, 0x1p-8 * std::fabs(exact) + 1e-7) << i;
          }
          const auto [first, second] = w.moments(i);
          const double floor = way.moments == DType::u8 ? 0x1p-18 * double(w.m_scale.here().as<float>()[i / moments_block]) : 0;
          ASSERT_NEAR(first, m[at], of_m * std::fabs(m[at]) + floor + 1e-12) << i;
          ASSERT_NEAR(second, v[at], of_m * v[at] + 1e-12) << i;
          ASSERT_EQ(second > 0, v[at] > 0) << i;
          drift += second / v[at] - 1;
        }
        EXPECT_NEAR(drift / double(n), 0, 4 * of_m / std::sqrt(double(n))) << "rounding keeps the mean";
      }
    }
  }
}

TEST_P(AdamwMoments, CpuAndGpuGiveTheSameBits) {
  if (GetParam() == Where::cpu) GTEST_SKIP() << "of both";
  for (const Way& way : ways()) {
    SCOPED_TRACE(words(way));
    for (const std::int64_t n : {1ll, 255ll, 256ll, 4096ll, 70001ll}) {
      std::vector<Weight> each;
      for (Where where : devices()) {
        Weight& w = each.emplace_back(n, way.moments, way.compute, way.halves, way.grad);
        begin_at(where, w);
        for (int t = 0; t < 3; ++t) step(where, w);
      }
      EXPECT_TRUE(each[0].same(each[1])) << n << " elements";
    }
  }
}

TEST_P(AdamwMoments, OfTheLeastAndTheLargestNumbersCpuAndGpuGiveTheSameBits) {
  if (GetParam() == Where::cpu) GTEST_SKIP() << "of both";
  for (DType moments : {DType::bf16, DType::u8})
    for (const double eps : {1e-8, 0.0, -1.0}) {  // no eps, and one that no optimizer has: the language's quotients
      std::vector<Weight> each;
      for (Where where : devices()) {
        Weight& w = each.emplace_back(8 * moments_block, moments, DType::bf16, true, DType::f32);
        const auto g = w.grad.values();
        const float of_block[] = {0, 1e-38f, 1e-30f, 1e-20f, 1e-3f, 1e10f, 1e15f, 1e18f};
        for (std::int64_t i = 0; i < 8 * moments_block; ++i) w.grad.set(i, float(g[std::size_t(i)]) * of_block[i / moments_block]);
        begin_at(where, w);
        for (int t = 0; t < 3; ++t) step(where, w, {0}, {.eps = eps, .clip = 0});
      }
      EXPECT_TRUE(each[0].same(each[1])) << eps;
    }
}

TEST_P(AdamwMoments, CutsAndPartsGiveTheBitsOfTheWhole) {
  for (const Way& way : ways()) {
    SCOPED_TRACE(words(way));
    const std::int64_t n = 9 * 1024 + 77;
    Weight whole(n, way.moments, way.compute, way.halves, way.grad), cut = whole;
    for (Weight* w : {&whole, &cut}) begin_at(GetParam(), *w);
    for (int t = 0; t < 3; ++t) step(GetParam(), whole), step(GetParam(), cut, {0, 1024, 1024, 5 * 1024, 9 * 1024});
    EXPECT_TRUE(whole.same(cut));

    Weight of_sum = whole, in_parts = whole;
    Twin parts(way.grad, {3 * 16384}), sum(DType::f32, {n});
    parts.normal(9);
    auto all = of_sum.all();
    for (Twin* t : {&parts, &sum}) all.push_back(t);
    for (Twin* t : in_parts.all()) all.push_back(t);
    run(GetParam(), all, [&](Context& ctx, const On& at) {
      const Tensor first(at(parts).data, way.grad, {n});
      gradient_sum::add(first, 3, 16384, at(sum), Gradient::overwrite, ctx);
      Update a = of_sum.update(at), b = in_parts.update(at);
      a.grad = at(sum), b.grad = first, b.parts = 3, b.apart = 16384;
      advance({&a, 1}, begin(at(of_sum.state), hyper, ctx), ctx);
      advance({&b, 1}, begin(at(in_parts.state), hyper, ctx), ctx);
    });
    EXPECT_TRUE(of_sum.same(in_parts));
  }
}

TEST_P(AdamwMoments, RoundingDependsOnSeedParameterAndUpdateAlone) {
  for (DType moments : {DType::bf16, DType::u8}) {
    const Weight w(3000, moments, DType::bf16, true, DType::bf16);
    const auto after = [&](std::uint64_t seed, std::uint32_t parameter) {
      Weight one = w;
      one.parameter = parameter;
      begin_at(GetParam(), one, seed);
      step(GetParam(), one);
      return one;
    };
    Weight a = after(1, 0), same = after(1, 0), other_seed = after(2, 0), other_parameter = after(1, 1);
    EXPECT_TRUE(a.same(same));
    EXPECT_TRUE(a.copy.bytes() == other_seed.copy.bytes()) << "a step is taken before its moments are rounded";
    EXPECT_FALSE(a.m.bytes() == other_seed.m.bytes());
    EXPECT_FALSE(a.v.bytes() == other_parameter.v.bytes());
  }
  for (DType moments : {DType::bf16, DType::u8}) {
    Weight w(70001, moments, DType::bf16, true, DType::bf16);
    begin_at(GetParam(), w);
    auto all = w.all();
    std::erase_if(all, [](Twin* t) { return !*t; });
    expect_same_bits(all, [&](Context& ctx, const On& at) {
      const Update u = w.update(at);
      advance({&u, 1}, begin(at(w.state), hyper, ctx), ctx);
    });
  }
}

TEST_P(AdamwMoments, WholeAndNarrowTogether) {  // as a block has vectors and matrices
  Weight whole(300, DType::f32, DType::f32, false, DType::f32), half(5000, DType::bf16, DType::bf16, false, DType::bf16),
      eight(5000, DType::u8, DType::bf16, false, DType::bf16);
  std::vector<Weight> apart{whole, half, eight}, together = apart;
  for (Weight& w : apart) begin_at(GetParam(), w), step(GetParam(), w);
  std::vector<Twin*> all;
  for (Weight& w : together) {
    begin_at(GetParam(), w);
    for (Twin* t : w.all()) all.push_back(t);
  }
  run(GetParam(), all, [&](Context& ctx, const On& at) {
    std::vector<Update> updates;
    for (Weight& w : together) updates.push_back(w.update(at));
    advance(updates, begin(at(together[0].state), hyper, ctx), ctx);
  });
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(apart[i].same(together[i])) << i;
}

TEST_P(AdamwMoments, AGradientThatIsNotFiniteIsSeenInTheWeightAndInEveryMomentOfItsBlock) {
  for (DType moments : {DType::bf16, DType::u8}) {
    Weight w(600, moments, DType::bf16, false, DType::f32);
    w.grad.set(300, NAN);
    begin_at(GetParam(), w);
    step(GetParam(), w);
    EXPECT_TRUE(std::isnan(w.weight(300)));
    EXPECT_FALSE(std::isnan(w.weight(299)));
    EXPECT_TRUE(std::isnan(w.moments(300).first));
    EXPECT_EQ(std::isnan(w.moments(299).second), moments == DType::u8) << "its scale is";
    EXPECT_FALSE(std::isnan(w.moments(255).second));
  }
}

}  // namespace
}  // namespace headroom::adamw
