// Ranks that take a step together: N of them give the bits of one with N micro-batches, whatever they share out, and each takes the bytes
// that the forecast says.
#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>

#include "engine/files/save.h"
#include "ops/copy/split.h"
#include "tests/engine/ranks_at_work.h"

namespace headroom::engine {
namespace {

// Runs of elements that no number of ranks divides, parameters that several ranks share, and ranks without any part of some.
Decoder uneven() {
  return decoder_of({.name = "uneven", .vocab = 301, .width = 40, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 12, .ffn = 52});
}

Recipe recipe_of(const char* precision, int micro_batches = 1) {
  Recipe r{uneven(), 2, 9, *precision_named(precision)};
  r.micro_batches = micro_batches;
  return r;
}

std::vector<Taken> together(Recipe r, int ranks, Sharding sharding, int steps, const adamw::Hyper& hyper) {
  r.ranks = {ranks, sharding};
  return engine::together(r, steps, hyper);
}

TEST(Ranks, OfAnyNumberAndShardingGiveTheBitsOfOneWithAsManyMicroBatches) {
  for (const char* precision : {"fp32", "bf16", "fp16", "fp8"})
    for (const int ranks : {2, 3, 4}) {
      if (ranks == 4 && precision == std::string("fp8")) continue;  // what fp8 adds does not know of ranks
      Recipe r = recipe_of(precision, ranks);
      const adamw::Hyper hyper = r.served({.lr = 0.01, .clip = 0.7});
      const Taken one = alone(r, 3, hyper);
      EXPECT_GT(one.norms[0], 0.7 * 0.01) << "clipping is at work somewhere";
      r.micro_batches = 1;
      for (const Sharding sharding : shardings) {
        SCOPED_TRACE(fmt::format("{} {} ranks {}", precision, ranks, name_of(sharding)));
        for (const Taken& each : together(r, ranks, sharding, 3, hyper)) expect_same(each, one);
      }
    }
}

TEST(Ranks, BlocksInGroupsHaveTheSameBitsInEverySharding) {
  Recipe r = recipe_of("bf16", 3);
  change_sizes(r.model, [](PlainModel& m) { m.layers = 5; });
  const adamw::Hyper hyper = r.served({.lr = 0.01, .clip = 0.7});
  const Taken one = alone(r, 2, hyper);
  r.micro_batches = 1;
  for (const Sharding sharding : shardings)
    for (const Keeping& keep : {Keeping{Keep::input, 2}, Keeping{Keep::everything, 3}}) {
      SCOPED_TRACE(fmt::format("{} {}", WordsOf<Keeping>::to(keep), name_of(sharding)));
      r.keep = keep;
      for (const Taken& each : together(r, 3, sharding, 2, hyper)) expect_same(each, one);
    }
}

TEST(Ranks, HoldWhatOneRankHoldsInEveryWay) {
  for (const bool tied : {false, true})
    for (const auto& [masters, gradients] : {std::pair{Masters::halves, Gradients::whole}, std::pair{Masters::whole, Gradients::half},
                                             std::pair{Masters::halves, Gradients::half}}) {
      Recipe r = recipe_of("bf16", 3);
      r.model.tied = tied;
      change_sizes(r.model, [&](PlainModel& m) { m.qkv_bias = m.qk_norm = !tied; });
      r.holding.masters = masters, r.holding.gradients = gradients;
      const adamw::Hyper hyper = r.served({.lr = 0.01});
      const Taken one = alone(r, 3, hyper);
      r.micro_batches = 1;
      for (const Sharding sharding : shardings) {
        SCOPED_TRACE(fmt::format("tied {} masters {} gradients {} {}", tied, name_of(masters), name_of(gradients), name_of(sharding)));
        for (const Taken& each : together(r, 3, sharding, 3, hyper)) expect_same(each, one);
      }
    }
}

// One rank cannot update during backward with several micro-batches; the same bits come from an update after it that clips nothing.
// Two replicas send each other whole gradients, more of them exchange parts.
TEST(Ranks, UpdatingDuringBackwardGiveTheBitsOfUpdatingAfterIt) {
  for (const int ranks : {2, 3})
    for (const Masters masters : {Masters::whole, Masters::halves})
      for (const Gradients gradients : {Gradients::whole, Gradients::half}) {
        Recipe r = recipe_of("bf16", ranks);
        r.holding.masters = masters, r.holding.gradients = gradients;
        adamw::Hyper hyper = r.served({.lr = 0.01, .clip = 0});
        const Taken one = alone(r, 3, hyper);
        r.micro_batches = 1, r.holding.updating = Updating::during;
        for (const Sharding sharding : shardings) {
          SCOPED_TRACE(fmt::format("{} ranks, masters {} gradients {} {}", ranks, name_of(masters), name_of(gradients), name_of(sharding)));
          for (Taken each : together(r, ranks, sharding, 3, hyper)) {
            each.norms = one.norms;  // there are none
            expect_same(each, one);
          }
        }
      }
}

// Where every micro-batch is exchanged, the order of all gradients is that of one rank; where each rank adds its own first, it is another.
TEST(Ranks, WithMicroBatchesOfTheirOwnAddThemInTheOrderOfAll) {
  for (const Gradients gradients : {Gradients::whole, Gradients::half}) {
    Recipe r = recipe_of("bf16", 6);
    r.holding.gradients = gradients;
    const adamw::Hyper hyper = r.served({.lr = 0.01});
    const Taken one = alone(r, 2, hyper);
    r.micro_batches = 3;
    for (const Sharding sharding : {Sharding::gradients, Sharding::everything})
      for (const Taken& each : together(r, 2, sharding, 2, hyper)) expect_same(each, one);
    const auto none = together(r, 2, Sharding::none, 2, hyper), optimizer = together(r, 2, Sharding::optimizer, 2, hyper);
    for (const Taken& each : {none[1], optimizer[0], optimizer[1]}) expect_same(each, none[0]);
    EXPECT_EQ(none[0].losses[0], one.losses[0]);
    EXPECT_NEAR(none[0].losses[1], one.losses[1], 1e-2);
  }
}

TEST(Ranks, AStepThatOneOfThemCannotTakeIsTakenByNone) {
  Recipe r = recipe_of("fp16");
  r.ranks = {3, Sharding::gradients};
  dist::as_threads(3, [&](dist::Comm& comm) {
    Workshop w(r, 1, {}, &comm);
    const Taken before = values_of(w);
    w.fill(5);
    w.training.backward();
    for (const Param& p : w.training.store().params())
      if (comm.rank() == 1 && p.spec.full_name() == "head.weight") {
        ASSERT_GT(p.count, 0);
        p.grad.as<float>()[p.count - 1] = std::numeric_limits<float>::infinity();
      }
    w.training.update(r.hyper());
    expect_same(values_of(w), before);
    EXPECT_EQ(w.training.state(adamw::skipped), 1);
    EXPECT_EQ(w.training.state(adamw::loss_scale), 0x1p15);
  });
}

TEST(Ranks, EachHoldsItsPartAndTheForecastKnowsWhatIsSent) {
  Recipe r{model_described("small"), 2, 64, *precision_named("bf16")};
  const Forecast alone = forecast(r, Device{}, 1);
  EXPECT_EQ(alone.link_bytes, 0);
  const double params = double(param_count(r.model));
  std::size_t before = alone.standing_bytes * 2;
  for (const Sharding s : shardings) {
    SCOPED_TRACE(name_of(s));
    r.ranks = {8, s};
    const Forecast f = forecast(r, Device{}, 1);
    EXPECT_LT(f.standing_bytes, before);
    before = f.standing_bytes;
    const double others = 7.0 / 8, embedding = double(r.model.vocab * r.model.width);
    const double gradients = 4 * params, blocks = 2 * (params - 2 * embedding), ends = (4 + 2) * embedding;  // the embedding is FP32
    const double weights = s == Sharding::none ? 4 * params                                                  // the gradients' sums instead
                           : s == Sharding::everything
                               ? ends + blocks * (2 - 1 / double(r.model.depth()))  // the last block's are still here
                               : ends + blocks;
    EXPECT_NEAR(f.link_bytes, others * (gradients + weights), 0.01 * others * (gradients + weights));
    if (s == Sharding::everything) {
      const double states = 18 * params / 8;  // what is left are loans: the embedding and its gradient twice, the head and so on
      EXPECT_GT(double(f.standing_bytes), states);
      EXPECT_LT(double(f.standing_bytes), states + 30 * embedding);
    }
  }
  Device gpu;
  gpu.kind = DeviceKind::cuda, gpu.sm = 90, gpu.units = 132, gpu.ceilings.fp32_flops = gpu.ceilings.bf16_flops = 1e15,
  gpu.ceilings.copy_bytes_per_s = 1e13;
  EXPECT_EQ(forecast(r, gpu, 1).ms, 0) << "without a link's rate there is no time";
  gpu.ceilings.link_bytes_per_s = 1e11;
  const Forecast f = forecast(r, gpu, 1);
  EXPECT_NEAR(f.link_ms, 1e3 * f.link_bytes / 1e11, 0.01 * f.link_ms);
  EXPECT_LE(f.exposed_ms, f.link_ms);
  EXPECT_GE(f.ms, f.exposed_ms);
}

TEST(Ranks, ACheckpointIsTheModelsNotTheRanks) {
  const std::string folder = (std::filesystem::temp_directory_path() / fmt::format("headroom-ranks-{}", ::getpid())).string();
  for (const Masters masters : {Masters::whole, Masters::halves}) {
    Recipe r = recipe_of("bf16", 6);
    r.holding.masters = masters;
    const adamw::Hyper hyper = r.served({.lr = 0.01});
    const auto of = [&](int ranks, Sharding sharding) {
      Recipe its = r;
      its.micro_batches = 6 / ranks, its.ranks = {ranks, sharding};
      return its;
    };
    std::filesystem::remove_all(folder);
    Taken saved;
    dist::as_threads(2, [&](dist::Comm& comm) {
      Workshop w(of(2, Sharding::everything), 1, {}, &comm);
      const Taken t = taken(w, 2, hyper);
      save(w.training, {2, 7, "{}"}, folder);
      if (comm.rank() == 0) saved = t;
    });
    const std::string file = *newest_checkpoint(folder);
    const auto resumed = [&](int ranks, Sharding sharding) {
      std::vector<Taken> after{std::size_t(ranks)};
      dist::as_threads(ranks, [&](dist::Comm& comm) {
        Workshop w(of(ranks, sharding), 1, {}, ranks > 1 ? &comm : nullptr);
        w.training.initialise(99);
        load(w.training, file);
        Taken loaded = values_of(w);
        loaded.losses = saved.losses, loaded.norms = saved.norms;
        expect_same(loaded, saved);
        after[std::size_t(comm.rank())] = taken(w, 2, hyper);
      });
      return after;
    };
    const Taken one = resumed(1, Sharding::none)[0];
    for (const auto& [ranks, sharding] : {std::pair{2, Sharding::gradients}, std::pair{3, Sharding::everything}})
      for (const Taken& each : resumed(ranks, sharding)) expect_same(each, one);
    resumed(3, masters == Masters::whole ? Sharding::none : Sharding::optimizer);  // its values; its own order from there on
  }
  std::filesystem::remove_all(folder);
}

TEST(Ranks, OfOtherStepsAreRefusedBeforeTheFirstAndTheDifferenceIsNamed) {
  for (const bool layout : {true, false}) {
    std::array<std::string, 3> heard;
    EXPECT_THROW(dist::as_threads(3,
                                  [&](dist::Comm& comm) {
                                    Recipe r = recipe_of("bf16");
                                    r.ranks = {3, Sharding::everything};
                                    if (comm.rank() == 1 && layout) change_sizes(r.model, [](PlainModel& m) { m.ffn += 100; });
                                    if (comm.rank() == 1 && !layout) r.attention = "plain";
                                    try {
                                      Workshop w(r, 1, {}, &comm);
                                    } catch (const Error& e) {
                                      heard[std::size_t(comm.rank())] = e.what();
                                      throw;
                                    }
                                  }),
                 Error);
    for (const std::string& words : heard) {
      EXPECT_NE(words.find(layout ? "ranks 0 and 1 were given different steps" : "rank 1 was given a step"), std::string::npos) << words;
      EXPECT_NE(words.find(layout ? "weights" : " attention "), std::string::npos) << words;
    }
  }
}

TEST(Ranks, WhatMakesNoSenseIsRefusedWithTheReason) {
  Recipe r = recipe_of("bf16");
  r.ranks = {2, Sharding::optimizer};
  r.holding = {Masters::halves, Updating::during, Gradients::none};
  EXPECT_THROW(check(r), Error);
  r.holding = {};
  Workshop one(recipe_of("bf16"));
  EXPECT_THROW(Training(r, one.ctx), Error) << "nobody to speak to";
}

}  // namespace
}  // namespace headroom::engine
