#include "engine/forecast/keep_auto.h"

#include <gtest/gtest.h>

#include "base/pinned_pages.h"
#include "tests/engine/workshop.h"

namespace headroom::engine {
namespace {

TEST(KeepAuto, FitsWhateverMemoryAllowsAndNeverCostsMoreThanOneLevelForAll) {
  Recipe r{model_described("small"), 4, 256, *precision_named("bf16")};
  Device gpu;
  gpu.kind = DeviceKind::cuda, gpu.name = "described", gpu.sm = 90, gpu.units = 132;
  gpu.ceilings.bf16_flops = 7e14, gpu.ceilings.fp32_flops = 5e13, gpu.ceilings.copy_bytes_per_s = 4e12;
  const auto of = [&](std::vector<Keep> keep) {
    Recipe its = r;
    its.keep = std::move(keep);
    return its;
  };
  const std::size_t most = forecast_peak(of({Keep::everything}), gpu, 1), least = forecast_peak(of({Keep::input}), gpu, 1);
  double before = 0;
  for (int i = 10; i >= 0; --i) {
    const std::size_t bytes = least + (most - least) / 10 * std::size_t(i) + (i == 10 ? 9 : 0);
    const auto keep = keep_that_fits(r, bytes, gpu, 1);
    ASSERT_TRUE(keep) << i;
    EXPECT_LE(forecast_peak(of(keep->levels), gpu, 1), bytes);
    const double ms = forecast(of(keep->levels), gpu, 1).ms;
    EXPECT_GE(ms, before) << "less memory is not faster";
    before = ms;
    for (std::size_t level = 0; level < names_of<Keep>.name.size(); ++level)
      if (forecast_peak(of({Keep(level)}), gpu, 1) <= bytes) {
        EXPECT_LE(ms, forecast(of({Keep(level)}), gpu, 1).ms) << name_of(Keep(level));
      }
  }
  EXPECT_FALSE(keep_that_fits(r, least - 1, gpu, 1));
  Recipe open = r, as_asked = r;
  open.keep = Keeping::automatic();
  EXPECT_THROW(find_keep(open, least - 1, gpu, 1), Error);
  EXPECT_THROW(forecast(open, gpu, 1), Error) << "what blocks keep is still to be found";
  as_asked.keep = {Keep::no_cheap};
  find_keep(as_asked, 0, gpu, 1);
  EXPECT_EQ(as_asked.keep, Keeping{Keep::no_cheap});
}

TEST(KeepAuto, CardsMapWhatWaitsOnTheHost) {
  Recipe r{model_described("small"), 4, 4096, *precision_named("bf16")};
  Device gpu;
  gpu.kind = DeviceKind::cuda, gpu.name = "described", gpu.sm = 90, gpu.units = 132;
  gpu.ceilings.bf16_flops = 7e14, gpu.ceilings.fp32_flops = 5e13, gpu.ceilings.copy_bytes_per_s = 4e12;
  gpu.ceilings.host_bytes_per_s = 5e12;  // so fast that waiting there is faster than doing again
  int on_host = 0;
  for (const int blocks : {4, 6, 8}) {
    Recipe asked = r;
    asked.keep = Keeping::on_host(blocks, Keep::everything);
    const std::size_t peak = forecast_peak(asked, gpu, 1);
    const std::size_t pages = bytes_of_pinned_pages(forecast(asked, gpu, 1).host_bytes);
    ASSERT_GT(pages, 0u) << blocks;
    for (const std::size_t bytes : {peak, peak + pages}) {
      Recipe found = r;
      found.keep = *keep_that_fits(r, bytes, gpu, 1);
      const Forecast f = forecast(found, gpu, 1);
      EXPECT_LE(f.peak_bytes + bytes_of_pinned_pages(f.host_bytes), bytes) << kept_in_words(found);
      on_host += found.keep.host > 0;
    }
  }
  EXPECT_GE(on_host, 3);
}

TEST(KeepAuto, AStepWithTheLevelsFoundTakesTheBytesForecastAndTheBitsOfKeepingAll) {
  Recipe r{tiny(), 2, 24, {}};
  change_sizes(r.model, [](PlainModel& m) { m.layers = 5; });
  Workshop all(r);
  const Device cpu;
  Recipe less = r;
  less.keep = {Keep::input};
  const std::size_t bytes = (all.predicted + forecast_peak(less, cpu, 2)) / 2;
  less.keep = *keep_that_fits(r, bytes, cpu, 2);
  EXPECT_EQ(less.keep.levels.size(), 5u);
  EXPECT_NE(less.keep.levels.front(), less.keep.levels.back()) << kept_in_words(less);
  Workshop some(less);
  for (Workshop* w : {&all, &some}) w->training.step(r.hyper());
  EXPECT_EQ(some.weights(), all.weights());
  EXPECT_EQ(some.arena.peak(), some.predicted);
  EXPECT_LE(some.arena.peak(), bytes);
}

}  // namespace
}  // namespace headroom::engine
