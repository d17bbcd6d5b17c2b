// A step whose blocks' products are in fp8: which operands each product reads, that keep levels, threads, ranks and holdings agree to the
// bit, bytes as forecast, and what is refused. Sizes are such that blocks of 128 end inside and at the edge of tensors.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "base/convert.h"
#include "engine/files/save.h"
#include "engine/forecast/keep_auto.h"
#include "memory/block.h"
#include "ops/matmul/reference.h"
#include "tests/engine/dense.h"
#include "tests/engine/oracle.h"
#include "tests/engine/workshop.h"

namespace headroom::engine {
namespace {

const Precision fp8{DType::e4m3};
constexpr Scales all_scales[] = {Scales::tensor, Scales::row, Scales::block};

Decoder blocky() {
  return decoder_of({.name = "blocky", .vocab = 61, .width = 136, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 34, .ffn = 150});
}
Recipe recipe(Scales scales = Scales::block, Precision precision = fp8) {
  Recipe r{blocky(), 1, 140, precision};
  if (precision == fp8) r.scales = scales;
  return r;
}

void make_lively_enough(Workshop& w) {
  const Random random{99};
  std::uint64_t i = 0;
  for (const Param& p : w.training.store().params())
    for (std::int64_t e = 0; e < p.master.count(); ++e) p.master.as<float>()[e] = float(p.spec.mean) + 0.05f * random.normal(i++);
  w.training.store().refresh_copies();
}

double cosine(const float* a, const float* b, std::int64_t n) {
  double ab = 0, aa = 0, bb = 0;
  for (std::int64_t i = 0; i < n; ++i)
    ab += double(a[i]) * double(b[i]), aa += double(a[i]) * double(a[i]), bb += double(b[i]) * double(b[i]);
  return ab / std::sqrt(aa * bb);
}

// What each product must be: its operands rounded to the formats of their roles here, by other words than the engine's, then FP64.
struct Formats8 {
  ScaledFormat x, w, d, d_transposed;
};
Formats8 by_hand(Scales s) {
  using enum ScaleKind;
  switch (s) {
    case Scales::tensor: return {{DType::e4m3, one}, {DType::e4m3, one}, {DType::e5m2, one}, {DType::e5m2, one}};
    case Scales::row: return {{DType::e4m3, row}, {DType::e4m3, row}, {DType::e4m3, row}, {DType::e4m3, row}};
    case Scales::block: return {{DType::e4m3, run}, {DType::e4m3, block}, {DType::e4m3, run}, {DType::e4m3, block}};
  }
  return {};
}

class Checked : public ProductWatch {
 public:
  Checked(Scales scales, Context& ctx, std::set<std::string> adds = {"attention.out", "ffn.down"})
      : formats_(by_hand(scales)), ctx_(ctx), adds_(std::move(adds)) {}
  std::map<std::string, int> seen;

  void product(const ProductSeen& p) override {
    ++seen[fmt::format("{} {}", p.name.text, names_of<Multiplied>.of(p.which))];
    ASSERT_TRUE(p.a && p.b) << p.name.full();
    const bool forward = p.which == Multiplied::forward;
    const ScaledFormat fa = forward                     ? formats_.x
                            : p.which == Multiplied::dw ? formats_.d_transposed
                                                        : formats_.d,
                       fb = p.which == Multiplied::dw ? formats_.x : formats_.w;
    const headroom::Block room(64 << 20);
    Arena arena(room.data(), room.bytes());
    Context ctx{arena, ctx_.device, ctx_.threads};
    const Scaled a = operand(p.a, fa, ctx), b = operand(matmul::transposed(p.b), fb, ctx);
    const auto exact = matmul::reference(a, matmul::transposed(b), ctx);
    if (adds_.contains(std::string(p.name.text))) return;  // to the stream, which is not seen here; that it is added, oracles show
    const double unit = p.c.dtype == DType::f32 ? 0x1p-24 : 0x1p-9;
    const double k = double(p.a.shape[1]);
    for (std::int64_t i = 0; i < exact.m * exact.n; ++i)
      ASSERT_NEAR(load_element(p.c.data, p.c.dtype, i), exact.value[std::size_t(i)],
                  2 * unit * std::abs(exact.value[std::size_t(i)]) + 0x1p-24 * (k + 8) * exact.size[std::size_t(i)])
          << p.name.full() << " " << i;
  }

 private:
  static Scaled operand(const Tensor& x, ScaledFormat f, Context& ctx) {  // [lines, k] of any strides
    const Tensor plain = ctx.arena.make("x", DType::f32, {x.shape[0], x.shape[1]});
    for (std::int64_t i = 0; i < x.shape[0]; ++i)
      for (std::int64_t j = 0; j < x.shape[1]; ++j)
        plain.as<float>()[i * x.shape[1] + j] = float(load_element(x.data, x.dtype, i * x.stride[0] + j * x.stride[1]));
    const Scaled y = quantise::make("y", f, x.shape[0], x.shape[1], ctx);
    quantise::quantise({plain, y}, ctx);
    return y;
  }
  Formats8 formats_;
  Context& ctx_;
  std::set<std::string> adds_;  // products whose result is added to something else
};

TEST(Fp8, EveryProductOfAStepReadsTheFormatsOfItsRoles) {
  for (const Scales scales : all_scales) {
    Recipe r = recipe(scales);
    r.keep = {Keep::no_cheap}, r.watched = true;  // norms are made again, so that what was quantised is at hand
    Workshop w(r);
    make_lively_enough(w);
    Checked checked(scales, w.ctx);
    w.training.watch(&checked);
    w.training.backward();
    EXPECT_EQ(checked.seen.size(), 12u);
    for (const auto& [name, times] : checked.seen) EXPECT_EQ(times, 2) << name << ": one in each layer";
    if (HasFatalFailure()) return;
  }
}

TEST(Fp8, EveryProductOfADenseFamilyReadsTheFormatsOfItsRoles) {
  for (const DenseModel& m : dense_models()) {
    SCOPED_TRACE(m.name);
    Recipe r{m.model, 2, 7, fp8};
    r.keep = {Keep::no_cheap}, r.watched = true;
    Workshop w(r);
    make_lively_enough(w);
    std::set<std::string> adds;
    if (!m.model.norms_after) adds = {"attention.out", "ffn.down"};
    if (!m.model.norms_before) adds = {"attention.qkv.dx", "ffn.gate_up.dx"};
    Checked checked(usual_scales, w.ctx, adds);
    w.training.watch(&checked);
    w.training.backward();
    EXPECT_EQ(checked.seen.size(), 12u);
    for (const auto& [name, times] : checked.seen) EXPECT_EQ(times, 2) << name;
    if (HasFatalFailure()) return;
  }
}

// A norm's result that is quantised as it is made, and one that is stored first.
TEST(Fp8, QuantisingNormsAsTheyAreMadeChangesNoBitAndSavesTheirBytes) {
  for (const Scales scales : all_scales)
    for (const Keep keep : {Keep::everything, Keep::no_cheap, Keep::input}) {
      SCOPED_TRACE(fmt::format("{} {}", names_of<Scales>.of(scales), name_of(keep)));
      Recipe r = recipe(scales);
      r.keep = {keep};
      Workshop made(r);
      r.watched = true;
      Workshop stored(r);
      for (Workshop* w : {&made, &stored}) make_lively_enough(*w), w->training.backward(), w->training.update({});
      EXPECT_EQ(made.gradients(), stored.gradients());
      EXPECT_EQ(made.training.loss(), stored.training.loss());
      const auto a = made.training.quantised(), b = stored.training.quantised();
      for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].flushed, b[i].flushed) << names_of<Quantised>.of(a[i].which);
      for (Workshop* w : {&made, &stored}) EXPECT_EQ(w->arena.peak(), w->predicted);
      EXPECT_LE(made.predicted, stored.predicted);
    }
}

// Beside the exact gradients: fp8's are rounded to 4 significant bits (3 in E5M2), errors of many roundings that do not add up.
TEST(Fp8, LossAndGradientsAreNearTheOracles) {
  for (const Scales scales : all_scales) {
    Recipe r{tiny(), 2, 7, fp8};  // the oracle is slow; the sizes of blocks are the test's above
    r.scales = scales;
    Workshop w(r);
    make_lively_enough(w);
    std::map<std::string, std::vector<double>> weights;
    for (const Param& p : w.training.store().params())
      for (std::int64_t e = 0; e < p.master.count(); ++e) weights[p.spec.full_name()].push_back(double(p.master.as<float>()[e]));
    const auto *a = w.training.tokens().as<std::int32_t>(), *b = w.training.targets().as<std::int32_t>();
    const auto expected = oracle::Lm(w.training.recipe().model, weights).run({a, a + 14}, {b, b + 14}, 2, 7);
    w.training.forward();
    EXPECT_NEAR(w.training.loss(), expected.loss, 0.01 * expected.loss);
    w.training.backward();
    EXPECT_NEAR(w.training.loss(), expected.loss, 0.01 * expected.loss);
    for (const Param& p : w.training.store().params()) {
      const auto& g = expected.gradients.at(p.spec.full_name());
      const std::vector<float> exact(g.begin(), g.end());
      EXPECT_GT(cosine(exact.data(), p.grad.as<float>(), p.grad.count()), 0.98) << p.spec.full_name() << " " << names_of<Scales>.of(scales);
    }
  }
}

TEST(Fp8, KeepLevelsThreadsAndRunsGiveTheSameBits) {
  for (const Scales scales : all_scales) {
    Workshop all(recipe(scales), 1), again(recipe(scales), 3);
    for (Workshop* w : {&all, &again}) make_lively_enough(*w), w->training.backward();
    EXPECT_EQ(all.gradients(), again.gradients());
    for (const Keep keep : {Keep::no_product, Keep::no_cheap, Keep::no_attention_inputs, Keep::input}) {
      Recipe r = recipe(scales);
      r.keep = {keep};
      Workshop less(r);
      make_lively_enough(less);
      less.training.backward();
      EXPECT_EQ(less.gradients(), all.gradients()) << name_of(keep);
      EXPECT_EQ(less.training.loss(), all.training.loss());
      less.training.update({});
      EXPECT_EQ(less.arena.peak(), less.predicted) << name_of(keep);
    }
  }
}

// What other families have beside a Llama: norms elsewhere, biases, GELU, windows, caps, learned positions.
TEST(Fp8, EveryDenseFamilyTrainsNearBf16AndKeepsItsBits) {
  for (const DenseModel& m : dense_models()) {
    SCOPED_TRACE(m.name);
    const auto lively_one = [&](Precision precision, Keep keep) {
      Recipe r{m.model, 2, 7, precision};
      r.keep = {keep};
      auto w = std::make_unique<Workshop>(r);
      make_lively_enough(*w);
      w->training.backward();
      return w;
    };
    const auto bf16 = lively_one({DType::bf16}, Keep::everything), all = lively_one(fp8, Keep::everything);
    EXPECT_NEAR(all->training.loss(), bf16->training.loss(), 0.01 * bf16->training.loss());
    const auto a = all->gradients(), b = bf16->gradients();
    EXPECT_GT(cosine(a.data(), b.data(), std::int64_t(a.size())),
              0.93);  // a norm after a half makes its small errors as large as the stream
    std::int64_t quantised = 0;
    for (const QuantisedCount& c : all->training.quantised()) {
      EXPECT_GT(c.numbers, 0) << names_of<Quantised>.of(c.which);
      quantised += c.numbers;
    }
    EXPECT_GT(quantised, 0);
    for (const Keep keep : {Keep::no_product, Keep::no_cheap, Keep::no_attention_inputs, Keep::input}) {
      const auto less = lively_one(fp8, keep);
      EXPECT_EQ(less->gradients(), a) << name_of(keep);
      less->training.update({});
      EXPECT_EQ(less->arena.peak(), less->predicted) << name_of(keep);
    }
  }
}

TEST(Fp8, EveryWayOfHoldingTakesItsForecastAndAgrees) {
  Recipe r = recipe();
  const auto run = [](Workshop& w) {
    make_lively_enough(w);
    for (std::uint64_t step = 0; step < 3; ++step) w.fill(step), w.training.step({.lr = 0.01, .clip = 0});
    EXPECT_EQ(w.arena.peak(), w.predicted);
  };
  Workshop after(r);
  run(after);
  r.holding.updating = Updating::during;
  Workshop during(r);
  run(during);
  EXPECT_EQ(during.weights(), after.weights());
  const auto lively_halves = [&](Gradients gradients, Keep keep) {
    Recipe h = recipe();
    h.keep = {keep}, h.holding = {Masters::halves, Updating::during, gradients};
    auto w = std::make_unique<Workshop>(h);
    for (std::uint64_t step = 0; step < 3; ++step) w->fill(step), w->training.step({.lr = 0.01, .clip = 0});
    EXPECT_EQ(w->arena.peak(), w->predicted);
    return w->weights();
  };
  const auto half = lively_halves(Gradients::half, Keep::everything);
  EXPECT_EQ(lively_halves(Gradients::none, Keep::everything), half) << "a product that updates its weight";
  EXPECT_EQ(lively_halves(Gradients::none, Keep::input), half);
}

TEST(Fp8, KeepsFewerBytesThanBf16) {
  const Device h200 = device_described("h200");
  Recipe r{presets().front(), 4, 1024, {DType::bf16}};
  const auto saved = [&](Precision p) {
    r.precision = p;
    return forecast(r, h200, 1).bytes_at_peak(Phase::saved);
  };
  EXPECT_LT(saved(fp8), saved({DType::bf16}));
  r.precision = {DType::bf16};
  const auto bf16_peak = forecast_peak(r, h200, 1);
  r.precision = fp8;
  EXPECT_LT(forecast_peak(r, h200, 1), bf16_peak);
}

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) { return e.what(); }
  return "";
}

// A level that rounds: the loss is forward's and so the same, gradients are near, bytes as forecast, and its own bits repeat wherever they wait.
TEST(Fp8, GateAndUpKeptInEightBitsMoveGradientsALittle) {
  for (const Precision p : {Precision{}, Precision{DType::bf16}, fp8}) {
    SCOPED_TRACE(name_of(p));
    const auto run = [&](Keeping keep) {
      Recipe r = recipe(Scales::block, p);
      r.keep = keep;
      auto w = std::make_unique<Workshop>(r);
      make_lively_enough(*w);
      w->training.backward();
      return w;
    };
    const auto exact = run({Keep::no_cheap}), rounded = run({Keep::gate_up_fp8});
    EXPECT_EQ(rounded->training.loss(), exact->training.loss());
    EXPECT_LT(rounded->predicted, exact->predicted);
    const auto a = exact->gradients(), b = rounded->gradients();
    EXPECT_NE(a, b) << "nothing was rounded";
    EXPECT_GT(cosine(a.data(), b.data(), std::int64_t(a.size())), 0.999);
    for (const Keeping& same : {Keeping{Keep::gate_up_fp8}, Keeping{Keep::gate_up_fp8, 1, 1}}) EXPECT_EQ(run(same)->gradients(), b);
    rounded->training.update({});
    EXPECT_EQ(rounded->arena.peak(), rounded->predicted);
  }
}

TEST(Fp8, GateAndUpKeptInEightBitsTakeHalfOfTheirBytes) {
  const Device h200 = device_described("h200");
  Recipe r{presets().front(), 4, 1024, {DType::bf16}};
  const auto saved = [&](Keep keep) {
    r.keep = {keep};
    return std::int64_t(forecast(r, h200, 1).bytes_at_peak(Phase::saved));
  };
  const std::int64_t numbers = r.batch * r.len * 2 * r.model.first().ffn.width * r.model.depth();
  EXPECT_EQ(saved(Keep::no_cheap) - saved(Keep::gate_up_fp8), numbers * 2 - numbers - numbers / 128 * 4);
  Recipe automatic = r;
  const auto found = keep_that_fits(automatic, forecast_peak(automatic, h200, 1) + 1000, h200, 1);
  ASSERT_TRUE(found);
  for (const Keep k : found->levels) EXPECT_NE(k, Keep::gate_up_fp8) << "auto takes only levels that give the same bits";
  r.keep = {Keep::gate_up_fp8}, r.model.untrained = "a kernel for it";
  EXPECT_NE(refusal([&] { check(r); }).find("is only counted"), std::string::npos);
}

TEST(Fp8, CountsWhatItClippedAndFlushed) {
  Recipe r = recipe(Scales::tensor);
  r.micro_batches = 2;
  Workshop w(r);
  make_lively_enough(w);
  for (int step = 0; step < 2; ++step) {  // counts are of one step
    for (int micro = 0; micro < 2; ++micro) w.fill(3, micro), w.training.backward(micro);
    const auto counts = w.training.quantised();
    ASSERT_EQ(counts.size(), std::size_t(2 * quantised_count));
    std::int64_t flushed = 0;
    for (const QuantisedCount& c : counts) {
      EXPECT_EQ(c.clipped, 0) << "scales are made of the values at hand";
      EXPECT_EQ(c.nan, 0);
      flushed += c.flushed;
      if (c.which == Quantised::d_gate_up) { EXPECT_EQ(c.numbers, 2 * 2 * 140 * 300); }
      if (c.which == Quantised::down) { EXPECT_EQ(c.numbers, 2 * 2 * 136 * 150); }
    }
    EXPECT_GT(flushed, 0) << "gradients span more than one scale a tensor can say";
  }
  Workshop plain(recipe(Scales::block, {DType::bf16}));
  plain.training.backward();
  EXPECT_TRUE(plain.training.quantised().empty());
}

// A checkpoint is of the model: what ran in bf16 may go on in fp8, and back.
TEST(Fp8, ACheckpointBeginsOrEndsInAnotherPrecision) {
  const std::string folder = (std::filesystem::temp_directory_path() / fmt::format("headroom-fp8-{}", ::getpid())).string();
  std::filesystem::remove_all(folder);
  Workshop bf16(recipe(Scales::block, {DType::bf16})), eight(recipe());
  bf16.training.step({.lr = 0.01});
  save(bf16.training, {1, 7, "{}"}, folder);
  load(eight.training, *newest_checkpoint(folder));
  EXPECT_EQ(eight.weights(), bf16.weights());
  EXPECT_EQ(eight.moments(1), bf16.moments(1));
  eight.training.step({.lr = 0.01});
  save(eight.training, {2, 7, "{}"}, folder);
  load(bf16.training, *newest_checkpoint(folder));
  EXPECT_EQ(eight.weights(), bf16.weights());
  EXPECT_EQ(bf16.training.state(adamw::updates), 2);
  std::filesystem::remove_all(folder);
}

TEST(Fp8, AnInfinityIsClippedAndNothingElseIsLost) {
  Workshop w(recipe());
  make_lively_enough(w);
  for (const Param& p : w.training.store().params())
    if (p.spec.full_name() == "blocks.1.ffn.down.weight") p.copy.as<bf16>()[5] = narrow<bf16>(INFINITY);
  w.training.forward();
  EXPECT_TRUE(std::isfinite(w.training.loss()));
  std::int64_t clipped = 0;
  for (const QuantisedCount& c : w.training.quantised()) {
    EXPECT_EQ(c.nan, 0);
    clipped += c.clipped;
    if (c.layer == 1 && c.which == Quantised::down) { EXPECT_EQ(c.clipped, 1); }
  }
  EXPECT_EQ(clipped, 1);
}

TEST(Fp8, WhatCannotRunIsRefusedAndWhatCanBeForecastIs) {
  const Device h200 = device_described("h200"), a100 = device_described("a100");
  Recipe r{presets().front(), 1, 128, fp8};
  EXPECT_GT(forecast_peak(r, h200, 1), 0u);
  EXPECT_GT(forecast(r, h200, 1).ms, 0);
  EXPECT_NE(refusal([&] { forecast(r, a100, 1); }).find("sm_80) multiplies no fp8"), std::string::npos);
  const Device b200 = device_described("b200");
  EXPECT_NE(refusal([&] { forecast(r, b200, 1); }).find("bf16 is served, and --scales tensor"), std::string::npos);
  r.scales = Scales::tensor;
  EXPECT_GT(forecast_peak(r, b200, 1), 0u);
  r.scales = {};
  change_sizes(r.model, [](PlainModel& m) { m.ffn = 1000; });
  EXPECT_NE(refusal([&] { forecast(r, h200, 1); }).find("the feed-forward width is 1000; fp8 on a GPU needs a multiple of 16"),
            std::string::npos);
  EXPECT_GT(forecast_peak(r, Device{}, 1), 0u) << "a CPU takes any size";
}

}  // namespace
}  // namespace headroom::engine
