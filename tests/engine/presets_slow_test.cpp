// Every preset that fits into a quarter of the memory that is free takes a real step in exactly the bytes that were forecast.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "tests/engine/workshop.h"

namespace headroom::engine {
namespace {

TEST(Presets, ThatFitTakeWhatWasForecast) {
  const Device here = cpu_device();
  int ran = 0;
  for (const Decoder& model : presets())
    for (const auto& [precision, keep] : {std::pair{"fp32", Keep::everything}, std::pair{"bf16", Keep::input}}) {
      const Recipe r{model, 1, 16, *precision_named(precision), {keep}};
      const Forecast f = forecast(r, Device{}, 2);
      if (f.peak_bytes > here.memory_bytes / 4) continue;
      SCOPED_TRACE(fmt::format("{} {} {}", model.name, precision, name_of(keep)));
      Workshop w(r, 2);
      w.training.backward();
      w.training.update({});
      EXPECT_EQ(w.ledger.peak_bytes(), f.peak_bytes);
      EXPECT_EQ(w.ledger.live_bytes(), f.standing_bytes);
      EXPECT_TRUE(std::isfinite(w.training.loss()));
      ++ran;
    }
  if (ran == 0) GTEST_SKIP() << "the smallest preset needs 2 GB, a quarter of what is free is less";
}

}  // namespace
}  // namespace headroom::engine
