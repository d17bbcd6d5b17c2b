#include "engine/pass/training.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/convert.h"
#include "ops/copy/split.h"
#include "tests/engine/dense.h"
#include "tests/engine/lively.h"
#include "tests/engine/oracle.h"
#include "tests/engine/workshop.h"

namespace headroom::engine {
namespace {

// Frequencies that no one formula gives; tests/ops/rope/rope_scaling_test.cpp holds them to transformers'.
std::map<bool, oracle::Lm::Turned> turned_of(const Recipe& r) {
  std::map<bool, oracle::Lm::Turned> all;
  for (const DecoderLayer& l : r.model.layers) {
    if (l.attention.turned.scaling == rope::Scaling::none) continue;
    const auto f = rope::frequencies(l.attention.turned, l.attention.turned_dim(), r.len);
    all[l.attention.window > 0] = {f.of_pair, f.magnitude};
  }
  return all;
}

oracle::Result oracle_of(Workshop& w) {
  std::map<std::string, std::vector<double>> weights;
  for (const Param& p : w.training.store().params())
    for (std::int64_t e = 0; e < p.master.count(); ++e) weights[p.spec.full_name()].push_back(double(p.master.as<float>()[e]));
  const Recipe& r = w.training.recipe();
  const auto *a = w.training.tokens().as<std::int32_t>(), *b = w.training.targets().as<std::int32_t>();
  return oracle::Lm(r.model, weights, turned_of(r)).run({a, a + r.batch * r.len}, {b, b + r.batch * r.len}, r.batch, r.len);
}

double relative_error(const std::vector<double>& expected, const float* got) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += (double(got[i]) - expected[i]) * (double(got[i]) - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(difference / size);
}

void expect_oracle(const Recipe& r, double loss_budget, double gradient_budget, float size = 0.4f) {
  Workshop w(r);
  fill_lively(w, size);
  w.training.state_tensor().as<double>()[adamw::loss_scale] =
      std::min(w.training.state(adamw::loss_scale), 256.0);  // below fp16's overflow here
  const auto expected = oracle_of(w);
  w.training.forward();
  EXPECT_NEAR(w.training.loss(), expected.loss, loss_budget * expected.loss);
  w.training.backward();
  EXPECT_NEAR(w.training.loss(), expected.loss, loss_budget * expected.loss);
  const double scale = w.training.state(adamw::loss_scale);
  for (const Param& p : w.training.store().params()) {
    auto g = expected.gradients.at(p.spec.full_name());
    for (double& x : g) x *= scale;
    EXPECT_LT(relative_error(g, p.grad.as<float>()), gradient_budget) << p.spec.full_name();
  }
}

TEST(Training, LossAndGradientsAreThoseOfTheOracle) {
  for (bool tied : {false, true})
    for (const char* attention : {"flash", "plain"}) {
      Recipe r{tiny(), 2, 7, {}};
      r.model.tied = tied, r.attention = attention;
      expect_oracle(r, 1e-6, 5e-6);  // some 40 times what one FP32 operation loses
    }
}

TEST(Training, BiasesAndHeadNormsAreThoseOfTheOracle) {  // Qwen2's and Qwen3's
  for (int which = 1; which < 4; ++which)
    for (const auto& [name, unit] : {std::pair{"fp32", 0x1p-23}, std::pair{"bf16", 0x1p-8}, std::pair{"fp16", 0x1p-11}}) {
      SCOPED_TRACE(fmt::format("{} {}", which, name));
      Recipe r{tiny(), 2, 7, *precision_named(name)};
      change_sizes(r.model, [&](PlainModel& m) { m.qkv_bias = which & 1, m.qk_norm = which & 2; });
      // The 4 numbers of a head's norm are sums of what was rounded at q, at k and at their gradients.
      expect_oracle(r, 8 * unit, (r.precision.dtype == DType::f32 ? 40 : 24) * unit);
    }
}

TEST(Training, EveryDenseFamilyIsThatOfTheOracle) {
  for (const DenseModel& m : dense_models())
    for (const auto& [name, unit] : {std::pair{"fp32", 0x1p-23}, std::pair{"bf16", 0x1p-8}, std::pair{"fp16", 0x1p-11}})
      for (const char* attention : {"flash", "plain"}) {
        SCOPED_TRACE(fmt::format("{} {} {}", m.name, name, attention));
        Recipe r{m.model, 2, 7, *precision_named(name)};
        r.attention = attention;
        const bool whole = r.precision.dtype == DType::f32;  // scores of large weights magnify what 16 bits round
        expect_oracle(r, 8 * unit, (whole ? 60 : 24) * unit, whole ? 0.4f : 0.2f);
      }
}

// Weights and activations hold 8 or 11 bits: an error of a few units of that, accumulated over two blocks.
TEST(Training, SmallFormatsStayWithinTheirBits) {
  for (const auto& [name, unit] : {std::pair{"bf16", 0x1p-8}, std::pair{"fp16", 0x1p-11}}) {
    Recipe r{tiny(), 2, 7, *precision_named(name)};
    expect_oracle(r, 2 * unit, 12 * unit);
  }
}

TEST(Training, LogitsInSixteenBitsCostAFewUnitsAndTakeTheBytesForecast) {
  for (const auto& [name, unit] : {std::pair{"bf16", 0x1p-8}, std::pair{"fp16", 0x1p-11}}) {
    Recipe r{tiny(), 2, 7, *precision_named(name)};
    const std::size_t whole = forecast_peak(r, {}, 2);
    r.logits = Logits::half;
    expect_oracle(r, 2 * unit, 12 * unit);
    Workshop w(r);
    w.training.step(r.hyper());
    EXPECT_EQ(w.arena.peak(), w.predicted);
    EXPECT_LE(w.predicted, whole);
  }
}

TEST(Training, BitsDoNotDependOnTheNumberOfThreads) {
  Recipe r{tiny(), 3, 33, {}};
  r.model.width = 40, r.model.vocab = 300;
  Workshop one(r, 1), four(r, 4);
  for (Workshop* w : {&one, &four})
    for (int step = 0; step < 3; ++step) {
      w->training.backward();
      w->training.update({});
    }
  EXPECT_EQ(one.weights(), four.weights());
  EXPECT_EQ(one.training.loss(), four.training.loss());
}

TEST(Training, LogitsInChunksGiveTheSameLoss) {
  Recipe r{tiny(), 2, 20, {}};
  Workshop whole(r);
  whole.training.backward();
  for (std::int64_t rows : {1, 7, 13, 39}) {
    r.loss_rows = rows;
    Workshop chunked(r);
    chunked.training.backward();
    EXPECT_NEAR(chunked.training.loss(), whole.training.loss(), 1e-7);
    const auto a = whole.gradients(), b = chunked.gradients();
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-7) << rows;
  }
}

TEST(Training, AccumulationIsTheMeanOfItsParts) {
  Recipe r{tiny(), 2, 8, {}};
  Workshop alone(r);
  r.micro_batches = 3;
  Workshop w(r);
  std::vector<double> mean(w.gradients().size(), 0.0);
  double loss = 0;
  for (std::uint64_t micro = 0; micro < 3; ++micro) {
    alone.fill(micro);
    alone.training.backward();
    const auto g = alone.gradients();
    for (std::size_t i = 0; i < g.size(); ++i) mean[i] += double(g[i]) / 3;
    loss += alone.training.loss() / 3;
  }
  for (int micro = 0; micro < 3; ++micro) {
    w.fill(std::uint64_t(micro), micro);
    w.training.backward(micro);
  }
  EXPECT_NEAR(w.training.loss(), loss, 1e-12);
  const auto g = w.gradients();
  for (std::size_t i = 0; i < g.size(); ++i) ASSERT_NEAR(g[i], mean[i], 1e-7);
}

TEST(Training, LearnsAFixedBatchInEveryPrecision) {
  for (const char* precision : {"fp32", "bf16", "fp16", "fp8"}) {
    Workshop w({tiny(), 2, 8, *precision_named(precision)});
    adamw::Hyper h;
    h.lr = 0.02, h.decay = 0, h.dynamic_scale = std::string_view(precision) == "fp16";
    w.training.backward();
    const double before = w.training.loss();
    for (int i = 0; i < 150; ++i) w.training.backward(), w.training.update(h);
    EXPECT_LT(w.training.loss(), 0.2 * before) << precision;
  }
}

TEST(Training, UpdatingDuringBackwardGivesTheBitsOfUpdatingAfterIt) {
  for (const char* precision : {"fp32", "bf16"}) {
    Recipe r{tiny(), 2, 8, *precision_named(precision)};
    Workshop after(r);
    r.holding.updating = Updating::during;
    Workshop during(r);
    EXPECT_LT(during.predicted, after.predicted);
    for (std::uint64_t step = 0; step < 4; ++step)
      for (Workshop* w : {&after, &during}) {
        w->fill(step);
        w->training.step({.lr = 0.01, .clip = 0});
      }
    EXPECT_EQ(during.weights(), after.weights()) << precision;
    EXPECT_EQ(during.moments(1), after.moments(1)) << precision;
    EXPECT_EQ(during.training.state(adamw::updates), 4);
    EXPECT_EQ(during.arena.peak(), during.predicted);
    EXPECT_THROW(during.training.update({}), Error);
    EXPECT_THROW(during.training.step({.clip = 1}), Error);
  }
}

TEST(Training, MastersInHalvesFollowWholeOnes) {
  Recipe r{tiny(), 2, 8, *precision_named("bf16")};
  Workshop whole(r);
  r.holding.masters = Masters::halves;
  Workshop halves(r);
  EXPECT_LT(halves.predicted, whole.predicted);
  for (std::uint64_t step = 0; step < 6; ++step)
    for (Workshop* w : {&whole, &halves}) {
      w->fill(step);
      w->training.step({.lr = 0.01});
    }
  EXPECT_EQ(halves.arena.peak(), halves.predicted);
  std::int64_t different = 0, all = 0;  // copies differ only where a weight lies just between two bf16 values
  for (std::size_t i = 0; i < whole.training.store().params().size(); ++i) {
    const Param &a = whole.training.store().params()[i], &b = halves.training.store().params()[i];
    for (std::int64_t e = 0; e < a.master.count(); ++e, ++all) {
      const float x = b.rest ? copy::join({b.copy.as<bf16>()[e], b.rest.as<std::uint16_t>()[e]}) : b.master.as<float>()[e];
      ASSERT_NEAR(x, a.master.as<float>()[e], 1e-3) << a.spec.full_name();
      different += x != a.master.as<float>()[e];
    }
  }
  EXPECT_LT(2 * different, all);
}

// Each micro-batch's gradient is made by itself, rounded where gradients are half, and added in FP32 in order: what several ranks do.
TEST(Training, MicroBatchesAddGradientsAsTheyAreMadeAlone) {
  for (const bool tied : {false, true})
    for (const Gradients gradients : {Gradients::whole, Gradients::half}) {
      Recipe r{tiny(), 2, 8, *precision_named("bf16")};
      r.model.tied = tied, r.holding.gradients = gradients, r.loss_rows = 5;
      Workshop one(r);
      r.micro_batches = 4;  // a power of two, so that a share of a gradient is that of its bits
      Workshop four(r);
      std::vector<float> sum;
      for (int micro = 0; micro < 4; ++micro) {
        one.fill(std::uint64_t(micro)), four.fill(std::uint64_t(micro), micro);
        one.training.backward(), four.training.backward(micro);
        std::size_t i = 0;
        for (const Param& p : one.training.store().params())
          for (std::int64_t e = 0; e < p.grad.count(); ++e, ++i) {
            const auto g = float(load_element(p.grad.data, p.grad.dtype, e)) / 4;
            if (micro == 0)
              sum.push_back(g);
            else
              sum[i] += g;
          }
      }
      const auto got = four.gradients();
      ASSERT_EQ(got.size(), sum.size());
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], sum[i]) << i;
      four.training.update(r.hyper());
      EXPECT_EQ(four.arena.peak(), four.predicted);
    }
}

TEST(Training, ANarrowGradientThatOverflowsIsSkipped) {
  Recipe r{tiny(), 2, 8, *precision_named("fp16")};
  r.holding.gradients = Gradients::half;
  Workshop w(r);
  w.training.backward();
  const auto before = w.weights();
  const Param& p = w.training.store().params()[2];
  ASSERT_EQ(p.grad.dtype, DType::f16);
  p.grad.as<f16>()[3] = narrow<f16>(1e9f);  // what a matmul writes of a sum that is too large
  w.training.update({.dynamic_scale = true});
  EXPECT_EQ(w.weights(), before);
  EXPECT_EQ(w.training.first_gradient_not_finite(), "the weight " + p.spec.full_name());
  EXPECT_EQ(w.training.state(adamw::loss_scale), 0x1p15);
}

TEST(Training, AGradientThatIsNotFiniteChangesNothingAndIsFound) {
  Workshop w({tiny(), 2, 8, *precision_named("fp16")});
  w.training.backward();
  const auto before = w.weights();
  w.training.store().params()[4].grad.as<float>()[3] = std::numeric_limits<float>::infinity();
  adamw::Hyper h;
  h.dynamic_scale = true;
  w.training.update(h);
  EXPECT_EQ(w.weights(), before);
  EXPECT_EQ(w.training.first_gradient_not_finite(), "the weight " + w.training.store().params()[4].spec.full_name());
  EXPECT_EQ(w.training.state(adamw::loss_scale), 0x1p15);
  EXPECT_EQ(w.training.state(adamw::updates), 0);

  // Block 1's gate overflows fp16 when its norm weights are huge; the weights themselves are finite.
  for (const Param& p : w.training.store().params())
    if (p.spec.full_name() == "blocks.1.norm2.weight") std::fill_n(p.master.as<float>(), p.master.count(), 1e8f);
  EXPECT_EQ(w.training.first_not_finite(), "block 1");
  w.training.store().params()[2].master.as<float>()[0] = NAN;
  EXPECT_EQ(w.training.first_not_finite(), "the weight blocks.0.attention.qkv.weight");
}

// Finite differences of the engine's own loss, in FP32: coarse, but through nothing else than forward.
TEST(Training, GradientsAreSlopesOfItsOwnLoss) {
  Workshop w({tiny(), 2, 6, {}});
  fill_lively(w);
  w.training.backward();
  const auto loss_at = [&](float* x, float value) {
    *x = value;
    w.training.forward();
    return w.training.loss();
  };
  const Random random{5};
  std::uint64_t draw = 0;
  for (const Param& p : w.training.store().params())
    for (int probe = 0; probe < 3; ++probe) {
      const auto i = std::int64_t(random.below(draw++, std::uint64_t(p.master.count())));
      float* x = p.master.as<float>() + i;
      const float was = *x, h = 4e-3f;
      const double slope = (loss_at(x, was + h) - loss_at(x, was - h)) / (2.0 * double(h));
      *x = was;
      EXPECT_NEAR(p.grad.as<float>()[i], slope, 2e-3 * std::abs(slope) + 3e-4) << p.spec.full_name() << " " << i;
    }
}

TEST(AdamW, IsTheTextbooksInFp64) {
  Workshop w({tiny(), 2, 6, {}});
  const auto first = w.weights();
  std::vector<double> x(first.begin(), first.end()), m(x.size(), 0.0), v(x.size(), 0.0);
  adamw::Hyper h;
  h.lr = 0.01, h.clip = 0.05, h.decay = 0.3;
  for (int t = 1; t <= 4; ++t) {
    w.fill(std::uint64_t(t));
    w.training.backward();
    const auto g = w.gradients();
    double norm = 0;
    for (float e : g) norm += double(e) * double(e);
    norm = std::sqrt(norm);
    ASSERT_GT(norm, h.clip);  // so that clipping is at work
    w.training.update(h);
    EXPECT_NEAR(w.training.state(adamw::grad_norm), norm, 1e-6 * norm);
    std::size_t i = 0;
    for (const Param& p : w.training.store().params())
      for (std::int64_t e = 0; e < p.master.count(); ++e, ++i) {
        const double clipped = double(g[i]) * h.clip / norm;
        m[i] = h.beta1 * m[i] + (1 - h.beta1) * clipped;
        v[i] = h.beta2 * v[i] + (1 - h.beta2) * clipped * clipped;
        x[i] -= h.lr * (p.spec.decay ? h.decay * x[i] : 0.0);
        x[i] -= h.lr * m[i] / (1 - std::pow(h.beta1, t)) / (std::sqrt(v[i] / (1 - std::pow(h.beta2, t))) + h.eps);
      }
    const auto got = w.weights();
    // Where a gradient is as small as eps its own FP32 error moves the quotient; elsewhere a few ulp of the step.
    for (std::size_t e = 0; e < x.size(); ++e) ASSERT_NEAR(got[e], x[e], 2e-6 + 1e-3 * h.lr) << e << " at step " << t;
  }
}

}  // namespace
}  // namespace headroom::engine
