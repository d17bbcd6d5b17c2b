// AdamW's moments in 16 and 8 bits through a whole step: learning, bits, bytes, ranks, checkpoints, and what is refused.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/files/save.h"
#include "tests/engine/ranks_at_work.h"

namespace headroom::engine {
namespace {

namespace fs = std::filesystem;

constexpr Moments smaller[] = {Moments::half, Moments::eight};

// Matrices of several blocks of moments, the last of each not whole.
Decoder in_blocks() {
  return decoder_of({.name = "in blocks", .vocab = 301, .width = 40, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 12, .ffn = 52});
}

Recipe recipe_with(const char* precision, Moments moments, int micro_batches = 1) {
  Recipe r{in_blocks(), 2, 9, *precision_named(precision)};
  r.holding.moments = moments, r.micro_batches = micro_batches;
  return r;
}

std::vector<Holding> holdings_taken(const Recipe& r) {  // every one that the engine takes with these moments
  std::vector<Holding> all;
  for (const Masters masters : {Masters::whole, Masters::halves})
    for (const Updating updating : {Updating::after, Updating::during})
      for (const Gradients gradients : {Gradients::whole, Gradients::half, Gradients::none}) {
        Recipe one = r;
        one.holding = {masters, updating, gradients, r.holding.moments};
        try {
          check(one);
          all.push_back(one.holding);
        } catch (const Error&) { continue; }
      }
  return all;
}

TEST(Moments, LearnAsWholeOnesDoAndTakeTheBytesOfTheForecast) {
  for (const char* precision : {"fp32", "bf16", "fp16", "fp8"}) {
    const adamw::Hyper hyper = recipe_with(precision, Moments::whole).served({.lr = 3e-3});
    const auto loss_of = [&](const Recipe& r) {
      Workshop w(r);
      w.fill(1);
      w.training.step(r.served(hyper));
      const double first = w.training.loss();
      for (int step = 0; step < 40; ++step) w.training.step(r.served(hyper));
      EXPECT_LT(w.training.loss(), 0.7 * first) << changed_in_words(r);
      expect_forecast(w);
      return w.training.loss();
    };
    for (const Holding& h : holdings_taken(recipe_with(precision, Moments::whole))) {
      Recipe whole = recipe_with(precision, Moments::whole);
      whole.holding = h;
      const double expected = loss_of(whole);
      for (const Moments moments : smaller) {
        Recipe r = whole;
        r.holding.moments = moments;
        EXPECT_NEAR(loss_of(r), expected, 0.05 * expected) << changed_in_words(r);
        EXPECT_LT(forecast_peak(r, Device{}, 2), forecast_peak(whole, Device{}, 2)) << changed_in_words(r);
      }
    }
  }
}

TEST(Moments, HoldingLessInOtherWaysGivesTheSameBits) {
  for (const Moments moments : smaller) {
    const adamw::Hyper hyper{.lr = 0.01, .clip = 0};
    Recipe r = recipe_with("bf16", moments);
    const auto of = [&](Masters masters, Updating updating, Gradients gradients) {
      r.holding = {masters, updating, gradients, moments};
      return alone(r, 4, hyper);
    };
    const auto expect_same_moments = [](const Taken& a, const Taken& b) {
      EXPECT_TRUE(a.weights == b.weights);
      EXPECT_TRUE(a.moments == b.moments);
    };
    expect_same_moments(of(Masters::whole, Updating::during, Gradients::whole), of(Masters::whole, Updating::after, Gradients::whole));
    expect_same_moments(of(Masters::halves, Updating::during, Gradients::half), of(Masters::halves, Updating::after, Gradients::half));
    expect_same_moments(of(Masters::halves, Updating::during, Gradients::none), of(Masters::halves, Updating::during, Gradients::half));
  }
}

TEST(Moments, BitsDependOnTheSeedAndNotOnThreads) {
  for (const Moments moments : smaller) {
    const Recipe r = recipe_with("bf16", moments);
    const auto after = [&](int threads, std::uint64_t seed) {
      Workshop w(r, threads);
      w.training.initialise(7);
      adamw::set_seed(w.training.state_tensor(), seed, w.ctx);
      for (int step = 0; step < 3; ++step) w.training.step({.lr = 0.01});
      return w.moments(0);
    };
    EXPECT_EQ(after(1, 7), after(3, 7));
    EXPECT_NE(after(1, 7), after(1, 8));
  }
}

TEST(Moments, OfRanksHaveTheBitsOfOneInEverySharding) {
  for (const Moments moments : smaller)
    for (const int ranks : {2, 3})
      for (const Updating updating : {Updating::after, Updating::during})
        for (const bool tied : {false, true}) {
          if (tied && updating == Updating::during) continue;
          Recipe r = recipe_with("bf16", moments, ranks);
          r.model.tied = tied, r.holding.masters = tied ? Masters::whole : Masters::halves;
          const adamw::Hyper hyper = r.served({.lr = 0.01, .clip = updating == Updating::after ? 0.7 : 0.0});
          const Taken one = alone(r, 3, hyper);
          r.micro_batches = 1, r.holding.updating = updating;
          for (const Sharding sharding : shardings) {
            SCOPED_TRACE(fmt::format("{} ranks, {}, tied {}, {}", ranks, changed_in_words(r), tied, name_of(sharding)));
            r.ranks = {ranks, sharding};
            for (Taken each : together(r, 3, hyper)) {
              if (updating == Updating::during) each.norms = one.norms;  // there are none
              expect_same(each, one);
            }
          }
        }
}

struct MomentsFolder {
  std::string path = (fs::temp_directory_path() / fmt::format("headroom-moments-{}", ::getpid())).string();
  MomentsFolder() { fs::remove_all(path); }
  ~MomentsFolder() { fs::remove_all(path); }
};

void train_on(Workshop& w, int from, int to) {
  for (int s = from; s < to; ++s) w.fill(std::uint64_t(s)), w.training.step(w.training.recipe().served({.lr = 0.01}));
}

TEST(Moments, AResumedRunIsTheRunThatNeverStopped) {
  for (const char* precision : {"bf16", "fp16"})
    for (const Moments moments : smaller) {
      const MomentsFolder folder;
      const Recipe r = recipe_with(precision, moments);
      Workshop through(r), first(r), second(r);
      train_on(through, 0, 8);
      train_on(first, 0, 4);
      save(first.training, {4, 7, "{}"}, folder.path);
      second.training.initialise(12345);
      load(second.training, *newest_checkpoint(folder.path));
      EXPECT_EQ(second.moments(0), first.moments(0));
      train_on(second, 4, 8);
      EXPECT_EQ(second.weights(), through.weights()) << changed_in_words(r);
      for (std::size_t n = 0; n < 4; ++n) EXPECT_EQ(second.moments(n), through.moments(n)) << changed_in_words(r);

      Recipe other = r;
      other.holding.moments = Moments::whole;
      Workshop whole(other);
      try {
        load(whole.training, *newest_checkpoint(folder.path));
        ADD_FAILURE() << "moments of another type";
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find("embedding.weight.m is " + std::string(moments == Moments::half ? "BF16" : "U8")),
                  std::string::npos)
            << e.what();
      }
      EXPECT_NO_THROW(load_weights(whole.training, *newest_checkpoint(folder.path)));
      EXPECT_EQ(whole.weights(), first.weights());
    }
}

// A file is of the model: what three ranks wrote in parts, one goes on with, and what one wrote, three.
TEST(Moments, ACheckpointOfRanksIsThatOfOne) {
  for (const Moments moments : smaller)
    for (const Sharding sharding : {Sharding::none, Sharding::everything}) {
      const MomentsFolder of_one, of_ranks;
      Recipe one = recipe_with("bf16", moments, 3), three = recipe_with("bf16", moments);
      three.ranks = {3, sharding};
      const auto steps = [](Workshop& w, int from, int to) {
        const Recipe& r = w.training.recipe();
        for (int step = from; step < to; ++step) {
          for (int micro = 0; micro < r.micro_batches; ++micro)
            w.fill(std::uint64_t(100 * step + r.micro_of_all(micro, w.training.rank())), micro);
          w.training.step(r.served({.lr = 0.01}));
        }
      };
      Workshop w(one), through(one);
      steps(w, 0, 2), steps(through, 0, 4);
      save(w.training, {2, 7, "{}"}, of_one.path + "-one");
      std::vector<Taken> resumed(3);
      dist::as_threads(3, [&](dist::Comm& comm) {
        Workshop part(three, 1, {}, &comm);
        steps(part, 0, 2);
        save(part.training, {2, 7, "{}"}, of_ranks.path + "-three");
        part.training.initialise(99);
        load(part.training, of_one.path + "-one/step-00000002.safetensors");
        steps(part, 2, 4);
        resumed[std::size_t(comm.rank())] = values_of(part);
      });
      Workshop back(one);
      load(back.training, of_ranks.path + "-three/step-00000002.safetensors");
      steps(back, 2, 4);
      const Taken expected = values_of(through);
      EXPECT_TRUE(values_of(back).moments == expected.moments);
      EXPECT_TRUE(values_of(back).weights == expected.weights);
      for (const Taken& each : resumed) {
        EXPECT_TRUE(each.moments == expected.moments);
        EXPECT_TRUE(each.weights == expected.weights);
      }
      fs::remove_all(of_one.path + "-one"), fs::remove_all(of_ranks.path + "-three");
    }
}

// Of 8B's 16 bytes a parameter for moments, 8 remain of FP32's two, 4 of bf16's and 2.03 of 8 bits'; vectors are few.
TEST(Moments, BytesOfAParameter) {
  const auto bytes = [](Moments moments) {
    Recipe r{model_described("8B"), 1, 128, *precision_named("bf16")};
    r.holding.moments = moments;
    const Forecast f = forecast(r, Device{}, 1);
    return double(f.bytes_at_peak(Phase::optimizer)) / double(param_count(r.model));
  };
  EXPECT_NEAR(bytes(Moments::whole), 8, 0.01);
  EXPECT_NEAR(bytes(Moments::half), 4, 0.01);
  EXPECT_NEAR(bytes(Moments::eight), 2 + 8 / 256.0, 0.01);
}

TEST(Moments, InsideProductsOnACardWhatNoKernelTakesIsRefusedInASentence) {
  Device card;
  card.kind = DeviceKind::cuda, card.sm = 90;
  const auto why = [&](const char* precision, std::int64_t width, Moments moments) -> std::string {
    Recipe r{
        decoder_of({.name = "m", .vocab = 512, .width = width, .layers = 2, .heads = 4, .kv_heads = 4, .head_dim = width / 4, .ffn = 512}),
        4, 64, *precision_named(precision)};
    r.holding = {Masters::halves, Updating::during, Gradients::none, moments};
    try {
      forecast(r, card, 1);
      return "";
    } catch (const Error& e) {
      EXPECT_EQ(e.at.code, Code::unsupported);
      return e.what();
    }
  };
  EXPECT_EQ(why("bf16", 256, Moments::half), "");
  EXPECT_EQ(why("bf16", 256, Moments::eight), "");
  EXPECT_EQ(why("bf16", 128, Moments::half), "");
  EXPECT_EQ(why("fp8", 256, Moments::half), "");
  EXPECT_NE(why("bf16", 128, Moments::eight).find("multiple of 256 columns"), std::string::npos);
  EXPECT_NE(why("fp8", 256, Moments::eight).find("--gradients half"), std::string::npos);
}

}  // namespace
}  // namespace headroom::engine
