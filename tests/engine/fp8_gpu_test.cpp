// A step in fp8 on a card against the CPU's, which tests/engine/fp8_test.cpp holds to FP64: gradients, repeated bits, bytes, refusals.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "engine/files/save.h"
#include "engine/pass/recorded.h"
#include "gpu/device.h"
#include "tests/engine/dense.h"
#include "tests/engine/never_held.h"
#include "tests/engine/recorded_repeats.h"

namespace headroom::engine {
namespace {

constexpr Scales every_scales[] = {Scales::tensor, Scales::row, Scales::block};

class Fp8Gpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "needs a CUDA device";
    if (cuda_device(0).sm / 10 != 9) GTEST_SKIP() << "needs Hopper";
  }
};

// Sides that 16 divides and 128 does not: blocks end inside tensors.
Recipe eight_bits(Scales scales) {
  Recipe r{decoder_of({.name = "eight", .vocab = 97, .width = 144, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 32, .ffn = 208}), 2,
           72, *precision_named("fp8")};
  r.scales = scales;
  return r;
}

struct Passed {
  double loss;
  std::vector<std::vector<float>> gradients;
  std::vector<QuantisedCount> counts;
};

Passed pass(const Recipe& r, const Device& d) {
  Workshop w(r, 2, d);
  fill_lively(w, 0.1f);
  w.training.backward();
  Passed out{w.training.loss(), {}, w.training.quantised()};
  for (const Param& p : w.training.store().params()) out.gradients.push_back(values_of<float>(p.grad, w.ctx));
  return out;
}

// At most twice the error of the CPU's step in the same formats. Weights are the same, so what quantising did to them is too.
void expect_near_the_cpus(const Recipe& r) {
  SCOPED_TRACE(fmt::format("{} {}", r.model.name, names_of<Scales>.of(*r.scales)));
  Recipe exactly = r;
  exactly.precision = {}, exactly.scales = {};
  const Passed exact = pass(exactly, {}), cpu = pass(r, {}), card = pass(r, cuda_device(0));
  const auto table = param_table(r.model);
  constexpr double of_formats = 2.5e-3;  // a loss's: RMS of the CPU's own error over dense_models, the largest 3.7e-3
  EXPECT_NEAR(card.loss, exact.loss, 2 * of_formats * exact.loss);
  for (std::size_t i = 0; i < table.size(); ++i) {
    const double honest = size_of_error(exact.gradients[i], cpu.gradients[i]);
    EXPECT_LT(honest, 0.4) << table[i].full_name();
    EXPECT_LT(size_of_error(exact.gradients[i], card.gradients[i]), 2 * honest + 1e-5) << table[i].full_name();
    EXPECT_LT(size_of_error(cpu.gradients[i], card.gradients[i]), honest + 1e-3) << table[i].full_name() << ": not the same numbers";
  }
  ASSERT_EQ(card.counts.size(), cpu.counts.size());
  for (std::size_t i = 0; i < cpu.counts.size(); ++i) {
    const QuantisedCount &a = cpu.counts[i], &b = card.counts[i];
    EXPECT_EQ(b.numbers, a.numbers);
    EXPECT_EQ(b.clipped, 0);
    EXPECT_EQ(b.nan, 0);
    if (a.which == Quantised::qkv || a.which == Quantised::out || a.which == Quantised::gate_up || a.which == Quantised::down) {
      EXPECT_EQ(b.flushed, a.flushed) << a.layer << " " << names_of<Quantised>.of(a.which);
    }
  }
}

TEST_F(Fp8Gpu, GradientsAreNearTheCpus) {
  for (const Scales scales : every_scales) expect_near_the_cpus(eight_bits(scales));
  Recipe r = eight_bits(usual_scales);
  for (const DenseModel& m : dense_models(r.model)) {
    r.model = m.model;
    expect_near_the_cpus(r);
  }
}

TEST_F(Fp8Gpu, EveryKeepLevelGivesTheSameBits) {
  for (const Scales scales : every_scales) {
    Recipe r = eight_bits(scales);
    Workshop all(r, 2, cuda_device(0));
    fill_lively(all, 0.1f);
    all.training.warm();  // measures the products: every choice is made before the first of the runs that are compared
    all.fill(1);
    all.training.backward();
    for (const Keep keep : {Keep::no_product, Keep::no_cheap, Keep::no_attention_inputs, Keep::input}) {
      r.keep = {keep};
      Workshop less(r, 2, cuda_device(0));
      fill_lively(less, 0.1f);
      less.training.backward();
      EXPECT_EQ(less.gradients(), all.gradients()) << name_of(keep) << " " << names_of<Scales>.of(scales);
      EXPECT_EQ(less.training.loss(), all.training.loss());
      EXPECT_EQ(less.arena.peak(), less.predicted);
    }
  }
}

// Norms, SwiGLU and its gradient, quantised as they are made; and stored first. `watched` stores them.
TEST_F(Fp8Gpu, QuantisingAsItIsMadeChangesNoBitAndTakesFewerBytes) {
  for (const Scales scales : every_scales)
    for (const Keep keep : {Keep::everything, Keep::no_cheap, Keep::input}) {
      SCOPED_TRACE(fmt::format("{} {}", names_of<Scales>.of(scales), name_of(keep)));
      Recipe r = eight_bits(scales);
      r.keep = {keep};
      change_sizes(r.model, [](PlainModel& m) { m.ffn = 256; });  // SwiGLU's gradient as it is made: gate's half ends with a block
      Workshop made(r, 2, cuda_device(0));
      r.watched = true;
      Workshop stored(r, 2, cuda_device(0));
      for (Workshop* w : {&made, &stored}) fill_lively(*w, 0.1f), w->training.warm(), w->fill(1), w->training.backward();
      EXPECT_EQ(made.gradients(), stored.gradients());
      EXPECT_EQ(made.training.loss(), stored.training.loss());
      EXPECT_EQ(made.arena.peak(), made.predicted);
      EXPECT_EQ(stored.arena.peak(), stored.predicted);
      EXPECT_LE(made.predicted, stored.predicted);
    }
}

TEST_F(Fp8Gpu, GateAndUpKeptInEightBitsAreTheCpusAndTakeTheirForecast) {
  for (const Precision p : {*precision_named("bf16"), *precision_named("fp8")}) {
    Recipe r = eight_bits(Scales::block);
    r.precision = p;
    if (p.dtype == DType::bf16) r.scales = {};
    Recipe exactly = r;
    exactly.precision = {}, exactly.scales = {};
    const Passed exact = pass(exactly, {});
    r.keep = {Keep::gate_up_fp8};
    const Passed on_cpu = pass(r, {}), card = pass(r, cuda_device(0)), again = pass(r, cuda_device(0));
    const auto table = param_table(r.model);
    for (std::size_t i = 0; i < table.size(); ++i) {
      const double honest = size_of_error(exact.gradients[i], on_cpu.gradients[i]);
      EXPECT_LT(size_of_error(exact.gradients[i], card.gradients[i]), 2 * honest + 1e-5) << table[i].full_name();
      EXPECT_LT(size_of_error(on_cpu.gradients[i], card.gradients[i]), honest + 1e-3) << table[i].full_name() << ": not the same numbers";
      EXPECT_EQ(card.gradients[i], again.gradients[i]) << table[i].full_name();
    }
    for (const Keeping& keep : {Keeping{Keep::gate_up_fp8}, Keeping{Keep::gate_up_fp8, 1, 1}}) {  // on the card; one block's on the host
      r.keep = keep;
      Workshop w(r, 2, cuda_device(0));
      fill_lively(w, 0.1f);
      w.training.backward();
      w.training.update({});
      w.place.wait();
      EXPECT_EQ(w.ledger.peak_bytes(), w.predicted);
    }
  }
}

TEST_F(Fp8Gpu, ARecordedStepGivesTheBitsOfLaunchesOneByOne) {
  for (const Scales scales : every_scales) {
    SCOPED_TRACE(names_of<Scales>.of(scales));
    expect_recorded_steps_repeat(eight_bits(scales), cuda_device(0));
  }
}

TEST_F(Fp8Gpu, GradientsThatAreNeverHeldLearnTheSameAndRepeatInAGraph) {
  const Device card = cuda_device(0);
  for (const Scales scales : every_scales)
    for (const Keep keep : {Keep::everything, Keep::input}) {
      SCOPED_TRACE(fmt::format("{} {}", names_of<Scales>.of(scales), name_of(keep)));
      Recipe r{whole_tiles(), 2, 64, *precision_named("fp8"), {keep}};
      r.scales = scales;
      expect_never_held_learns_the_same(r, 20, card);
    }
}

TEST_F(Fp8Gpu, EveryWayOfHoldingTakesItsForecastAndAResumedRunIsTheRunThatNeverStopped) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("headroom-gpu-fp8-{}", ::getpid());
  for (const Holding holding : {Holding{}, Holding{Masters::halves, Updating::during, Gradients::half},
                                Holding{Masters::halves, Updating::during, Gradients::none}}) {
    std::filesystem::remove_all(folder);
    Recipe r = eight_bits(Scales::block);
    if (holding.gradients == Gradients::none) r.model = whole_tiles();
    r.holding = holding;
    const auto train = [&r](Workshop& w, int from, int to) {
      for (int s = from; s < to; ++s)
        w.fill(std::uint64_t(s)), w.training.step({.lr = 0.01, .clip = r.holding.updating == Updating::during ? 0.0 : 1.0});
    };
    const Device card = cuda_device(0);
    Workshop through(r, 2, card), first(r, 2, card), second(r, 2, card);
    for (Workshop* w : {&through, &first}) w->training.warm();
    train(through, 0, 7);
    train(first, 0, 3);
    save(first.training, {3, 7, "{}"}, folder.string());
    second.training.initialise(12345);
    load(second.training, *newest_checkpoint(folder.string()));
    second.training.warm();
    train(second, 3, 7);
    EXPECT_EQ(second.weights(), through.weights());
    EXPECT_EQ(second.moments(0), through.moments(0));
    EXPECT_EQ(through.arena.peak(), through.predicted);
  }
  std::filesystem::remove_all(folder);
}

TEST_F(Fp8Gpu, TheForecastIsTheLedgerToTheByte) {
  const Device card = cuda_device(0);
  const Random random{2026};
  std::uint64_t at = 0;
  const auto among = [&](std::int64_t low, std::int64_t high) {
    return low + std::int64_t(random.below(at++, std::uint64_t(high - low + 1)));
  };
  for (int trial = 0; trial < 12; ++trial) {
    Recipe r = eight_bits(every_scales[trial % 3]);
    r.keep = {Keep(among(0, 4))};
    change_sizes(r.model, [&](PlainModel& m) {
      m.kv_heads = among(1, 3), m.heads = m.kv_heads * among(1, 3), m.head_dim = 16 * among(1, 6);
      m.width = 16 * among(1, 20), m.layers = among(1, 3), m.ffn = 16 * among(1, 20), m.vocab = 8 * among(1, 90);
    });
    r.batch = 16 / std::int64_t(1 << among(0, 3)), r.len = 16 * among(1, 12);
    r.purpose = Purpose(among(0, 2)), r.holding.gradients = Gradients(among(0, 1));
    SCOPED_TRACE(fmt::format("trial {}: {} batch {} len {}", trial, to_json(r.model), r.batch, r.len));
    Workshop w(r, 2, card);
    if (r.purpose == Purpose::forward)
      w.training.forward();
    else
      w.training.backward();
    if (r.purpose == Purpose::training) w.training.update({});
    w.place.wait();
    EXPECT_EQ(w.ledger.peak_bytes(), w.predicted);
    EXPECT_TRUE(std::isfinite(w.training.loss()));
  }
}

TEST_F(Fp8Gpu, WhatIsNotServedIsSaidInOneLine) {
  const auto refusal = [](const Recipe& r) -> std::string {
    try {
      Workshop w(r, 2, cuda_device(0));
    } catch (const Error& e) { return e.at.code == Code::unsupported ? e.what() : "another code"; }
    return "";
  };
  Recipe r = eight_bits(Scales::block);
  r.len = 75;
  EXPECT_NE(refusal(r).find("batch times len is 150; fp8 on a GPU needs a multiple of 16"), std::string::npos);
  r = eight_bits(Scales::block);
  r.model =
      decoder_of({.name = "no whole tiles", .vocab = 97, .width = 128, .layers = 2, .heads = 2, .kv_heads = 2, .head_dim = 64, .ffn = 256});
  r.holding = {Masters::halves, Updating::during, Gradients::none};
  EXPECT_NE(refusal(r).find("256 must divide the sides of a weight"), std::string::npos);
}

}  // namespace
}  // namespace headroom::engine
