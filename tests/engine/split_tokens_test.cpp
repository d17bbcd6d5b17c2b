// Ranks that hold a part of every sequence's tokens: losses and gradients are as near to the exact ones as one rank's are, every sharding has
// the same bits, and each takes the bytes that the forecast says.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "dist/threads.h"
#include "engine/files/save.h"
#include "tests/engine/dense.h"
#include "tests/engine/oracle.h"
#include "tests/engine/ranks_at_work.h"

namespace headroom::engine {
namespace split_tokens_tests {  // a name: what is used here stays here, where a folder is one source

Recipe recipe_of(const char* precision, std::int64_t batch, std::int64_t len) {
  return {decoder_of({.name = "uneven", .vocab = 301, .width = 40, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 12, .ffn = 52}),
          batch, len, *precision_named(precision)};
}
Recipe split(Recipe r, int ranks, Sharding sharding = Sharding::none) {
  r.ranks = {ranks, sharding, true};
  return r;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {  // RMS of the difference over the RMS of b
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) difference += std::pow(double(a[i]) - double(b[i]), 2), size += std::pow(double(b[i]), 2);
  return std::sqrt(difference / size);
}

TEST(SplitTokens, LossesAndNormsAreThoseOfOneRankButForTheLastDigits) {
  for (const char* precision : {"fp32", "bf16", "fp16"})
    for (const int ranks : {2, 3, 4})
      for (const char* attention : {"flash", "plain"}) {
        SCOPED_TRACE(fmt::format("{} {} ranks {}", precision, ranks, attention));
        Recipe r = recipe_of(precision, 1 + ranks % 2, 2 * ranks * 11);
        r.attention = attention;
        const adamw::Hyper hyper = r.served({.lr = 1e-3});
        const Taken one = alone(r, 3, hyper);
        const auto all = together(split(r, ranks, shardings[std::size_t(ranks - 1) % 4]), 3, hyper);
        for (const Taken& each : all) EXPECT_EQ(each, all[0]);
        const double unit = std::string(precision) == "bf16" ? 0x1p-8 : std::string(precision) == "fp16" ? 0x1p-11 : 0x1p-23;
        for (std::size_t i = 0; i < 3; ++i) {  // a product of fewer rows may add in another order, also forward
          EXPECT_NEAR(all[0].losses[i], one.losses[i], 2 * unit * one.losses[i]);
          EXPECT_NEAR(all[0].norms[i], one.norms[i], 4 * unit * one.norms[i]);
        }
      }
}

// Windows, caps and scales differ by layer, scaled positions turn by their place in the whole sequence.
TEST(SplitTokens, EveryDenseFamilyWhosePositionsTurnIsSplit) {
  for (const DenseModel& m : dense_models()) {
    SCOPED_TRACE(m.name);
    Recipe r{m.model, 2, 24, {}};
    const adamw::Hyper hyper = r.served({.lr = 1e-3});
    if (m.model.positions > 0) {
      EXPECT_THROW(check(split(r, 2)), Error);
      continue;
    }
    const Taken one = alone(r, 2, hyper);
    const auto all = together(split(r, 3, Sharding::gradients), 2, hyper);
    for (const Taken& each : all) EXPECT_EQ(each, all[0]);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(all[0].losses[i], one.losses[i], 4 * 0x1p-23 * one.losses[i]);
      EXPECT_NEAR(all[0].norms[i], one.norms[i], 64 * 0x1p-23 * one.norms[i]);
    }
  }
}

TEST(SplitTokens, EveryShardingHasTheSameBits) {
  for (const char* precision : {"fp32", "bf16"}) {
    Recipe r = recipe_of(precision, 2, 24);
    change_sizes(r.model, [&](PlainModel& m) { m.qkv_bias = m.qk_norm = true; });
    const adamw::Hyper hyper = r.served({.lr = 0.01, .clip = 0.7});
    const Taken first = together(split(r, 3), 3, hyper)[0];
    for (const Sharding s : shardings)
      for (const Taken& each : together(split(r, 3, s), 3, hyper)) EXPECT_EQ(each, first) << name_of(s);
    r.micro_batches = 2;
    const Taken two = together(split(r, 3), 2, hyper)[0];
    for (const Taken& each : together(split(r, 3, Sharding::everything), 2, hyper)) EXPECT_EQ(each.losses[0], two.losses[0]);
  }
}

TEST(SplitTokens, WhatIsHeldAndKeptChangesNoBits) {
  Recipe r = recipe_of("bf16", 1, 32);
  r.holding.gradients = Gradients::half;
  const adamw::Hyper hyper = r.served({.lr = 0.01, .clip = 0});
  const Taken first = together(split(r, 2), 2, hyper)[0];
  for (const Masters masters : {Masters::whole, Masters::halves})
    for (const Updating updating : {Updating::after, Updating::during})
      for (const Keep keep : {Keep::everything, Keep::no_cheap, Keep::no_attention_inputs, Keep::input}) {
        Recipe other = split(r, 2, Sharding::optimizer);
        other.holding.masters = masters, other.holding.updating = updating, other.keep = {keep};
        for (Taken each : together(other, 2, hyper)) {
          each.norms = first.norms;  // an update during backward knows none
          EXPECT_EQ(each, first) << name_of(masters) << " " << name_of(updating) << " " << name_of(keep);
        }
      }
}

// Against FP64: at most twice the error of one rank, and a few units in the last place.
TEST(SplitTokens, GradientsAreAsExactAsOneRanks) {
  for (const auto& [precision, unit_of_it] : {std::pair{"fp32", 0x1p-23}, std::pair{"bf16", 0x1p-8}, std::pair{"fp16", 0x1p-11}})
    for (const bool tied : {false, true}) {
      const double unit = unit_of_it;
      SCOPED_TRACE(fmt::format("{} tied {}", precision, tied));
      Recipe r{tiny(), 2, 12, *precision_named(precision)};
      r.model.tied = tied;
      const auto gradients = [&](Workshop& w) {
        const Random random{99};
        std::uint64_t i = 0;
        for (const Param& p : w.training.store().params()) {
          std::vector<float> values(std::size_t(p.spec.shape.count()));
          for (float& x : values) x = float(p.spec.mean) + 0.4f * random.normal(i++);
          w.training.store().set_values(p, values.data());
        }
        w.training.store().refresh_copies();
        w.training.state_tensor().as<double>()[adamw::loss_scale] = std::min(w.training.state(adamw::loss_scale), 256.0);
        w.training.backward();
        std::map<std::string, std::vector<float>> parts;
        for (const Param& p : w.training.store().params()) {
          const auto values = values_of<float>(p.grad, w.ctx);
          parts[p.spec.full_name()].assign(values.begin(), values.end());
        }
        return parts;
      };
      Workshop one(r, 1);
      auto of_one = gradients(one);
      std::map<std::string, std::vector<double>> weights;
      for (const Param& p : one.training.store().params())
        for (const float x : one.training.store().values(p)) weights[p.spec.full_name()].push_back(double(x));
      const auto *a = one.training.tokens().as<std::int32_t>(), *b = one.training.targets().as<std::int32_t>();
      const auto expected = oracle::Lm(r.model, weights).run({a, a + r.batch * r.len}, {b, b + r.batch * r.len}, r.batch, r.len);
      std::map<std::string, std::vector<float>> of_ranks;  // every rank has its part of each gradient
      std::array<std::map<std::string, std::vector<float>>, 3> each;
      dist::as_threads(3, [&](dist::Comm& comm) {
        Workshop w(split(r, 3), 1, {}, &comm);
        each[std::size_t(comm.rank())] = gradients(w);
        EXPECT_NEAR(w.training.loss(), expected.loss, 4 * unit * expected.loss);
      });
      for (const auto& parts : each)
        for (const auto& [name, values] : parts) of_ranks[name].insert(of_ranks[name].end(), values.begin(), values.end());
      const double scale = one.training.state(adamw::loss_scale);
      for (const auto& [name, exact_values] : expected.gradients) {
        const auto& exact = exact_values;
        const std::vector<float> wanted = [&] {
          std::vector<float> all;
          for (const double x : exact) all.push_back(float(x * scale));
          return all;
        }();
        ASSERT_EQ(of_ranks[name].size(), wanted.size()) << name;
        EXPECT_LE(distance(of_ranks[name], wanted), 2 * distance(of_one[name], wanted) + 4 * unit) << name;
      }
    }
}

TEST(SplitTokens, ForwardAloneAndLogitsAreThoseOfOneRank) {
  const Recipe r = [] {
    Recipe its = recipe_of("bf16", 2, 36);
    its.purpose = Purpose::forward;
    return its;
  }();
  const std::vector<std::int64_t> rows{0, 5, 17, 35, 36, 71};
  const auto seen = [&](Workshop& w) {
    w.training.forward();
    std::vector<double> all{w.training.loss()};
    std::vector<float> room(std::size_t(r.model.vocab));
    const Tensor out(room.data(), DType::f32, {1, r.model.vocab});
    for (const auto row : rows) {
      w.training.logits_at(row, out);
      all.insert(all.end(), room.begin(), room.end());
    }
    return all;
  };
  Workshop one(r, 1);
  const auto expected = seen(one);
  for (const int ranks : {2, 3})
    dist::as_threads(ranks, [&](dist::Comm& comm) {
      Workshop w(split(r, ranks, Sharding::everything), 1, {}, &comm);
      const auto got = seen(w);
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 0x1p-8 * std::abs(expected[i]) + 0x1p-10);
    });
}

TEST(SplitTokens, AModelTrainedOnPartsGoesOnAlone) {
  const std::string folder = (std::filesystem::temp_directory_path() / fmt::format("headroom-split-{}", ::getpid())).string();
  std::filesystem::remove_all(folder);
  const Recipe r = recipe_of("fp32", 1, 24);
  const adamw::Hyper hyper = r.served({.lr = 0.01});
  Taken before, after;
  dist::as_threads(3, [&](dist::Comm& comm) {
    Workshop w(split(r, 3, Sharding::gradients), 1, {}, &comm);
    const Taken t = taken(w, 2, hyper);
    save(w.training, {2, 7, "{}"}, folder);
    if (comm.rank() == 0) before = t;
  });
  Workshop one(r, 1);
  load(one.training, *newest_checkpoint(folder));
  for (std::size_t i = 0; const Param& p : one.training.store().params())
    for (const float x : one.training.store().values(p)) ASSERT_EQ(x, before.weights[i++]);
  std::filesystem::remove_all(folder);
}

TEST(SplitTokens, AForecastKnowsWhatIsSentAndThatMemoryIsDivided) {
  Recipe r{model_described("small"), 1, 4096, *precision_named("bf16")};
  const Forecast whole = forecast(r, Device{}, 1);
  for (const int ranks : {2, 8}) {
    const Recipe its = split(r, ranks, Sharding::optimizer);
    const Forecast f = forecast(its, Device{}, 1);
    Recipe not_split = its;
    not_split.ranks.split_tokens = false;
    const double others = double(ranks - 1) / ranks, kv = double(2 * r.len * r.model.first().attention.k_width());
    const double more = double(r.model.depth()) * others * kv * (2 + 2 + 4);  // gathered twice in bf16, gradients exchanged in FP32
    EXPECT_NEAR(f.link_bytes - forecast(not_split, Device{}, 1).link_bytes, more, 1e-3 * more);
    EXPECT_LT(double(f.bytes_at_peak(Phase::saved)), 1.2 * double(whole.bytes_at_peak(Phase::saved)) / ranks);
    EXPECT_NEAR(f.model_flops, whole.model_flops / ranks, 1e-9 * f.model_flops);
    EXPECT_NEAR(f.flops, whole.flops / ranks, 0.05 * f.flops);
  }
}

TEST(SplitTokens, WhatMakesNoSenseIsRefusedWithTheReason) {
  const auto refusal = [](const Recipe& r) -> std::string {
    try {
      check(r);
    } catch (const Error& e) { return e.what(); }
    return "";
  };
  const Recipe r = recipe_of("bf16", 1, 24);
  EXPECT_EQ(refusal(split(r, 3)), "");
  EXPECT_EQ(refusal(split(r, 1)), "step: tokens are split over ranks, and there is one; give --ranks or --gpus");
  EXPECT_EQ(refusal(split(r, 5)), "step: len 24 is split over 5 ranks in two stripes each; make it a multiple of 10, 20 for one");
  EXPECT_NE(refusal(split(recipe_of("bf16", 1, 3), 2)).find("make it a multiple of 4, 4 for one"), std::string::npos);
}

}  // namespace split_tokens_tests
}  // namespace headroom::engine
