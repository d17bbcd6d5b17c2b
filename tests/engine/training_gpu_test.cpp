// The engine on a card against the engine on the CPU: the same weights, the same tokens.
#include "engine/pass/training.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "engine/data/data.h"
#include "engine/files/save.h"
#include "engine/pass/recorded.h"
#include "gpu/device.h"
#include "tests/engine/dense.h"
#include "tests/engine/never_held.h"
#include "tests/engine/recorded_repeats.h"

namespace headroom::engine {
namespace {

class TrainingGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "needs a CUDA device";
  }
};

Decoder small_model() {
  return decoder_of({.name = "small", .vocab = 97, .width = 64, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 16, .ffn = 96});
}

Decoder qwen_like() {  // with biases of q, k and v, and norms of q's and k's heads
  Decoder d = small_model();
  change_sizes(d, [](PlainModel& m) { m.name = "qwen-like", m.qkv_bias = m.qk_norm = true; });
  return d;
}

Recipe recipe(const char* precision, const char* attention = "flash", Keep keep = Keep::everything) {
  Recipe r{small_model(), 2, 40, *precision_named(precision), {keep}, attention};
  return r;
}

std::vector<Decoder> models() {  // and one of every dense family
  std::vector<Decoder> all{small_model(), qwen_like()};
  for (const DenseModel& m : dense_models(small_model())) all.push_back(m.model);
  return all;
}

void make_lively(Workshop& w) {
  fill_lively(w, 0.2f);
  auto state = values_of<double>(w.training.state_tensor(), w.ctx);
  state[adamw::loss_scale] = std::min(state[adamw::loss_scale], 256.0);  // below fp16's overflow here
  write(state.data(), w.training.state_tensor(), w.ctx);
}

struct Ran {
  double loss;
  std::vector<std::vector<double>> gradients;  // each parameter's, without the loss scale
};

Ran run(const Recipe& r, const Device& d) {
  Workshop w(r, 2, d);
  make_lively(w);
  w.training.backward();
  Ran out{w.training.loss(), {}};
  const double scale = w.training.state(adamw::loss_scale);
  for (const Param& p : w.training.store().params()) {
    HostView view(w.ctx);
    const char* g = view.read(p.grad);
    out.gradients.emplace_back();
    for (std::int64_t i = 0; i < p.grad.count(); ++i) out.gradients.back().push_back(load_element(g, p.grad.dtype, i) / scale);
  }
  return out;
}

// fp32: the same arithmetic in another order. The small formats: at most twice the error of the CPU's engine in the same precision.
TEST_F(TrainingGpu, GradientsAreThoseOfTheCpu) {
  const Device card = cuda_device(0);
  for (const Decoder& model : models()) {
    const auto table = param_table(model);
    Recipe exactly = recipe("fp32");
    exactly.model = model;
    const Ran exact = run(exactly, {});
    int served = 0;
    const bool jumps = model.layers[0].ffn.function == activation::Function::relu;  // its slope does, where rounding turns a sign
    for (const char* precision : {"fp32", "tf32", "bf16", "fp16"})
      for (const char* attention : {"flash", "plain"}) {
        if (jumps && precision != std::string("fp32")) continue;
        Recipe r = recipe(precision, attention);
        r.model = model;
        try {
          check(r);
          for (const DecoderLayer& l : model.layers) attention::choose(problem_of(l.attention, 2, 40, 40, r.precision), card, attention);
        } catch (const Error&) { continue; }  // nothing on this card serves it
        SCOPED_TRACE(fmt::format("{} {} {}", model.name, precision, attention));
        ++served;
        const Ran got = run(r, card);
        const bool small = size_of(r.precision.dtype) == 2, tf32 = r.precision.math == Math::tf32;
        const Ran same = small ? run(r, {}) : exact;
        EXPECT_NEAR(got.loss, exact.loss, (small ? 0x1p-7 : tf32 ? 0x1p-10 : 2e-6) * exact.loss);
        for (std::size_t i = 0; i < table.size(); ++i) {
          const double honest = size_of_error(exact.gradients[i], same.gradients[i]);
          EXPECT_LT(size_of_error(exact.gradients[i], got.gradients[i]), tf32 ? 12 * 0x1p-11 : 2 * honest + 1e-5) << table[i].full_name();
        }
        if (!small) continue;
        Recipe half = r;  // what is rounded once more may be off by that rounding, and is what the CPU's is
        half.holding.gradients = Gradients::half;
        const Ran narrow = run(half, card), narrow_on_cpu = run(half, {});
        for (std::size_t i = 0; i < table.size(); ++i) {
          const double honest = size_of_error(exact.gradients[i], narrow_on_cpu.gradients[i]);
          EXPECT_LT(size_of_error(exact.gradients[i], narrow.gradients[i]), 2 * honest + 1e-5) << table[i].full_name();
          EXPECT_LT(size_of_error(got.gradients[i], narrow.gradients[i]), r.precision.dtype == DType::bf16 ? 0x1p-8 : 0x1p-10)
              << table[i].full_name();
        }
      }
    EXPECT_GE(served, jumps ? 1 : 4) << model.name << ": precisions and kinds of attention";
  }
}

TEST_F(TrainingGpu, EveryKeepLevelGivesTheSameBits) {
  const Device card = cuda_device(0);
  for (const char* precision : {"fp32", "bf16"})
    for (const char* attention : {"flash", "plain"})
      for (const Decoder& model : models()) {
        Recipe r = recipe(precision, attention);
        r.model = model;
        Workshop all(r, 2, card);
        make_lively(all);
        all.training.backward();
        for (Keep keep : {Keep::no_product, Keep::no_cheap, Keep::no_attention_inputs, Keep::input}) {
          r.keep = {keep};
          Workshop less(r, 2, card);
          make_lively(less);
          less.training.backward();
          EXPECT_EQ(less.gradients(), all.gradients()) << name_of(keep) << " " << precision << " " << attention << " " << model.name;
          EXPECT_EQ(less.training.loss(), all.training.loss());
        }
      }
}

TEST_F(TrainingGpu, ARecordedStepGivesTheBitsOfLaunchesOneByOne) {
  Recipe r = recipe("bf16");
  r.model = qwen_like();
  expect_recorded_steps_repeat(r, cuda_device(0));
}

TEST_F(TrainingGpu, WhatWaitsOnTheHostGivesTheSameBitsLaunchedAndRecorded) {
  Recipe r{decoder_of({.name = "deep", .vocab = 300, .width = 256, .layers = 9, .heads = 4, .kv_heads = 4, .head_dim = 64, .ffn = 512}), 2,
           256, *precision_named("bf16")};
  r.micro_batches = 2;
  Workshop all(r, 2, cuda_device(0));
  r.keep = {Keep::no_cheap, 1, 7};
  Workshop eager(r, 2, cuda_device(0)), replayed(r, 2, cuda_device(0));
  EXPECT_EQ(eager.training.host_keep()->host_bytes(), forecast(r, cuda_device(0), 2).host_bytes);
  EXPECT_LT(eager.predicted, all.predicted);
  const adamw::Hyper h{.lr = 0.01};
  for (Workshop* w : {&all, &eager, &replayed}) w->training.warm();
  const Recorded passes([&] { replayed.training.passes(h); }, replayed.ctx);
  for (int step = 0; step < 20; ++step) {
    for (int micro = 0; micro < 2; ++micro)
      for (Workshop* w : {&all, &eager, &replayed}) w->fill(10 * std::uint64_t(step) + std::uint64_t(micro), micro);
    for (Workshop* w : {&all, &eager}) w->training.step(h);
    replayed.training.set_rate(h.lr);
    passes();
    ASSERT_EQ(eager.training.loss(), all.training.loss()) << step;
    ASSERT_EQ(replayed.training.loss(), all.training.loss()) << step;
  }
  EXPECT_EQ(eager.weights(), all.weights());
  EXPECT_EQ(replayed.weights(), all.weights());
  EXPECT_EQ(replayed.arena.peak(), replayed.predicted);
}

TEST_F(TrainingGpu, HoldingLessGivesTheSameBits) {
  Recipe r = recipe("bf16");
  r.model = qwen_like();
  Workshop after(r, 2, cuda_device(0));
  r.holding.updating = Updating::during;
  Workshop during(r, 2, cuda_device(0));
  r.holding.masters = Masters::halves;
  Workshop halves(r, 2, cuda_device(0)), on_cpu(r);
  for (Workshop* w : {&during, &halves}) w->training.warm();
  for (std::uint64_t step = 0; step < 5; ++step)
    for (Workshop* w : {&after, &during, &halves, &on_cpu}) {
      w->fill(step);
      w->training.step({.lr = 0.01, .clip = 0});
    }
  EXPECT_EQ(during.weights(), after.weights());
  EXPECT_EQ(halves.arena.peak(), halves.predicted);
  EXPECT_NEAR(halves.training.loss(), after.training.loss(), 1e-3);  // two copies in 65 536 are rounded another way
  EXPECT_NEAR(halves.training.loss(), on_cpu.training.loss(), 2e-2);
}

TEST_F(TrainingGpu, SmallerMomentsLearnAsOnACpuAndRepeatInAGraph) {
  const Device card = cuda_device(0);
  for (const Moments moments : {Moments::half, Moments::eight})
    for (const Holding& holding : {Holding{}, Holding{Masters::halves, Updating::during, Gradients::half},
                                   Holding{Masters::halves, Updating::during, Gradients::none}}) {
      if (holding.gradients == Gradients::none && card.sm / 10 != 9) continue;
      Recipe r = recipe("bf16");
      r.model = whole_tiles(), r.holding = holding, r.holding.moments = moments;
      SCOPED_TRACE(changed_in_words(r));
      Workshop eager(r, 2, card), replayed(r, 2, card), on_cpu(r);
      const adamw::Hyper h = r.served({.lr = 5e-4});
      for (Workshop* w : {&eager, &replayed}) w->training.warm();
      EXPECT_EQ(eager.moments(0), on_cpu.moments(0)) << "warming changes nothing";
      const Recorded passes([&] { replayed.training.passes(h); }, replayed.ctx);
      for (int step = 0; step < 20; ++step) {
        for (Workshop* w : {&eager, &replayed, &on_cpu}) w->fill(std::uint64_t(step) % 3);
        for (Workshop* w : {&eager, &on_cpu}) w->training.step(h);
        replayed.training.set_rate(h.lr);
        passes();
      }
      EXPECT_EQ(replayed.weights(), eager.weights());
      for (std::size_t n = 0; n < 4; ++n) EXPECT_EQ(replayed.moments(n), eager.moments(n));
      EXPECT_EQ(eager.arena.peak(), eager.predicted);
      EXPECT_NEAR(eager.training.loss(), on_cpu.training.loss(), 0.02 * on_cpu.training.loss());
    }
}

TEST_F(TrainingGpu, GradientsThatAreNeverHeldLearnTheSameAndRepeatInAGraph) {
  const Device card = cuda_device(0);
  if (card.sm / 10 != 9) GTEST_SKIP() << "needs Hopper";
  Decoder cut_tiles = whole_tiles();
  change_sizes(cut_tiles, [](PlainModel& m) { m.ffn = 424; });
  const std::pair<Decoder, Keep> all[] = {
      {whole_tiles(), Keep::everything}, {whole_tiles(), Keep::no_product}, {whole_tiles(), Keep::input}, {cut_tiles, Keep::everything}};
  for (const auto& [model, keep] : all) { expect_never_held_learns_the_same({model, 2, 64, *precision_named("bf16"), {keep}}, 30, card); }
}

TEST_F(TrainingGpu, GradientsThatAreNeverHeldRefuseAWidthThatTheKernelDoesNotServe) {
  Recipe r = recipe("bf16");
  r.holding = {Masters::halves, Updating::during, Gradients::none};
  change_sizes(r.model, [](PlainModel& m) { m.ffn = 100; });
  try {
    forecast_peak(r, cuda_device(0), 2);
    ADD_FAILURE() << "a feed-forward width of 100 was taken";
  } catch (const Error& e) { EXPECT_EQ(e.at.code, Code::unsupported) << e.what(); }
}

TEST_F(TrainingGpu, AResumedRunIsTheRunThatNeverStopped) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("headroom-gpu-save-{}", ::getpid());
  for (const auto& [precision, holding] :
       {std::pair{"bf16", Holding{}}, std::pair{"fp16", Holding{}},
        std::pair{"bf16", Holding{Masters::halves, Updating::during, Gradients::half}},
        std::pair{"fp16", Holding{Masters::whole, Updating::after, Gradients::half}},
        std::pair{"bf16", Holding{Masters::halves, Updating::during, Gradients::none}},
        std::pair{"bf16", Holding{.moments = Moments::half}}, std::pair{"bf16", Holding{.moments = Moments::eight}}}) {
    if (holding.gradients == Gradients::none && cuda_device(0).sm / 10 != 9) continue;
    std::filesystem::remove_all(folder);
    Recipe r = recipe(precision);
    if (holding.gradients == Gradients::none) r.model = whole_tiles();
    r.holding = holding;
    const auto train = [&r](Workshop& w, int from, int to) {
      adamw::Hyper h{.lr = 0.01, .clip = r.holding.updating == Updating::during ? 0.0 : 1.0};
      h.dynamic_scale = r.precision.dtype == DType::f16;
      for (int s = from; s < to; ++s) w.fill(std::uint64_t(s)), w.training.step(h);
    };
    const Device card = cuda_device(0);
    Workshop through(r, 2, card), first(r, 2, card), second(r, 2, card);
    for (Workshop* w : {&through, &first}) w->training.warm();  // plans of products are measured before the first step, not between
    train(through, 0, 9);
    train(first, 0, 4);
    save(first.training, {4, 7, "{}"}, folder.string());
    second.training.initialise(12345);
    load(second.training, *newest_checkpoint(folder.string()));
    second.training.warm();
    train(second, 4, 9);
    EXPECT_EQ(second.weights(), through.weights()) << precision << ", gradients " << name_of(holding.gradients);
    EXPECT_EQ(second.moments(0), through.moments(0)) << precision << ", gradients " << name_of(holding.gradients);
  }
  std::filesystem::remove_all(folder);
}

// The arena has not a byte more than the forecast, and the ledger says that it needs all of them.
TEST_F(TrainingGpu, TheForecastIsTheLedgerToTheByte) {
  const Device card = cuda_device(0);
  const Random random{2026};
  std::uint64_t at = 0;
  const auto among = [&](std::int64_t low, std::int64_t high) {
    return low + std::int64_t(random.below(at++, std::uint64_t(high - low + 1)));
  };
  for (int trial = 0; trial < 24; ++trial) {
    Recipe r = recipe(among(0, 1) ? "bf16" : "fp16", among(0, 1) ? "flash" : "plain", Keep(among(0, 4)));
    change_sizes(r.model, [&](PlainModel& m) {
      m.kv_heads = among(1, 3), m.heads = m.kv_heads * among(1, 3), m.head_dim = 8 * among(1, 12);
      m.width = 8 * among(1, 40), m.layers = among(1, 3), m.ffn = 8 * among(1, 40), m.vocab = 8 * among(1, 90);
      m.tied = among(0, 1), m.qkv_bias = among(0, 1), m.qk_norm = among(0, 1);
    });
    r.batch = among(1, 3), r.len = among(1, 300), r.loss_rows = among(0, 1) * among(1, 200);
    r.purpose = Purpose(among(0, 2)), r.holding.gradients = Gradients(among(0, 1));
    if (r.precision.dtype == DType::bf16) r.holding.masters = Masters(among(0, 1));
    SCOPED_TRACE(fmt::format("trial {}: {} batch {} len {} {}", trial, to_json(r.model), r.batch, r.len, r.attention));
    Workshop w(r, 2, card);
    if (r.purpose == Purpose::forward)
      w.training.forward();
    else
      w.training.backward();
    if (r.purpose == Purpose::training) w.training.update({});
    w.place.wait();
    EXPECT_EQ(w.ledger.peak_bytes(), w.predicted);
    EXPECT_EQ(w.arena.peak(), w.predicted);
    EXPECT_EQ(forecast(r, card, 1).peak_bytes, w.predicted);
    EXPECT_TRUE(std::isfinite(w.training.loss()));
  }
}

// Below the edge a step runs; the same step with 64 MiB less on the card is refused by the driver, and the card is none the worse.
TEST_F(TrainingGpu, TheEdgeOfTheCardsMemoryIsWhereItWasForecast) {
  const Device card = cuda_device(0);
  Recipe r{model_described("small"), 4, 256, *precision_named("bf16")};
  { Workshop loads_everything(r, 2, card); }
  const std::size_t needed = forecast_peak(r, card, 2), step = 2u << 20;
  const std::size_t spare = 48u << 20;  // cuBLAS, kernels' code and local memory
  {
    const Buffer others(device_memory().free_bytes / step * step - (needed + spare) / step * step);
    Workshop w(r, 2, card);
    w.training.step({});
    w.place.wait();
    EXPECT_TRUE(std::isfinite(w.training.loss()));
  }
  const Buffer others(device_memory().free_bytes / step * step - (needed - (64u << 20)) / step * step);
  try {
    Workshop w(r, 2, card);
    ADD_FAILURE() << "it fits, with " << device_memory().free_bytes << " bytes free";
  } catch (const Error& e) { EXPECT_EQ(e.at.code, Code::out_of_memory) << e.what(); }
}

// Small words in an order that has to be learned.
std::string text_file() {
  const char* words[] = {"the lamp ", "turns ", "over the sea ", "and ships ", "come home ", "in the fog.\n"};
  const auto path = std::filesystem::temp_directory_path() / fmt::format("headroom-gpu-text-{}", ::getpid());
  std::ofstream out(path);
  const Random random{3};
  for (std::uint64_t i = 0; i < 4000; ++i) out << words[random.uniform(i) < 0.8 ? i % 6 : random.below(9000 + i, 6)];
  return path.string();
}

// The mean loss of every 50 steps: that of one step depends on its batch, and batches are small. At this rate a curve is the arithmetic's:
// weights nudged by 1e-4 of themselves move it by at most 2e-4 (measured on a CPU). At four times the rate a nudge of 1e-7 grows to 2 %.
std::vector<double> losses(const Recipe& r, const Device& d, const Data& data) {
  Workshop w(r, 2, d);
  w.training.warm();
  adamw::Hyper h;
  const Recorded passes([&] { w.training.passes(h); }, w.ctx);
  std::vector<double> out;
  for (int step = 0; step < 500; ++step) {
    data.draw(w.training, 5, step, 0);
    w.training.set_rate(5e-4);
    passes();
    if (step % 50 == 0) out.push_back(0);
    out.back() += w.training.loss() / 50;
  }
  return out;
}

TEST_F(TrainingGpu, FiveHundredStepsFollowTheCpusLosses) {
  const std::string path = text_file();
  Recipe r{small_model(), 4, 48, *precision_named("bf16")};
  r.model.vocab = 256;
  const Data data(path, TokenFormat::text, 256, 0.1);
  const auto on_card = losses(r, cuda_device(0), data), again = losses(r, cuda_device(0), data);
  EXPECT_EQ(on_card, again);  // the same seed, the same bits
  r.precision = {};
  const auto on_cpu = losses(r, {}, data), exact = losses(r, cuda_device(0), data);
  EXPECT_LT(on_cpu.back(), 0.05 * on_cpu.front());
  for (std::size_t i = 0; i < on_cpu.size(); ++i) {
    EXPECT_NEAR(exact[i], on_cpu[i], 0.001 * on_cpu[i]) << 50 * (i + 1);
    EXPECT_NEAR(on_card[i], on_cpu[i], 0.015 * on_cpu[i]) << 50 * (i + 1);
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace headroom::engine
