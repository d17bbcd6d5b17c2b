// --copies kept on a card: sides of whole tiles, whose copies the update writes, and others; in a graph too.
#include "tests/engine/weight_copies.h"

#include "engine/pass/recorded.h"
#include "gpu/device.h"
#include "tests/engine/lively.h"

namespace headroom::engine {
namespace {

class WeightCopiesGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "needs a CUDA device";
    if (cuda_device(0).sm / 10 != 9) GTEST_SKIP() << "needs Hopper";
  }
};

std::vector<Holding> holdings() {
  std::vector<Holding> all;
  for (const Moments m : {Moments::whole, Moments::half, Moments::eight}) {
    all.push_back({Masters::whole, Updating::after, Gradients::whole, m});
    all.push_back({Masters::halves, Updating::during, Gradients::half, m});
    if (m != Moments::eight) all.push_back({Masters::halves, Updating::during, Gradients::none, m});
  }
  return all;
}

TEST_F(WeightCopiesGpu, KeptChangeNoBitAndTakeTheBytesOfTheForecast) {
  for (const Holding& h : holdings()) {
    Recipe r{whole_tiles(), 2, 64, {DType::e4m3}};
    r.scales = Scales::block, r.holding = h;
    expect_copies_kept_change_no_bit(r, cuda_device(0), 4);
    if (h.gradients == Gradients::none) continue;
    change_sizes(r.model, [](PlainModel& m) { m.width = 144, m.ffn = 208, m.head_dim = 32; });
    expect_copies_kept_change_no_bit(r, cuda_device(0), 2);
  }
}

TEST_F(WeightCopiesGpu, ARecordedStepGivesTheBitsOfLaunchesOneByOne) {
  for (const Holding& h : holdings()) {
    Recipe r{whole_tiles(), 2, 64, {DType::e4m3}};
    r.scales = Scales::block, r.holding = h, r.holding.copies = WeightCopies::kept;
    SCOPED_TRACE(changed_in_words(r));
    Workshop eager(r, 2, cuda_device(0)), replayed(r, 2, cuda_device(0));
    const adamw::Hyper hyper = r.served({.lr = 1e-3});
    for (Workshop* w : {&eager, &replayed}) w->training.warm();
    const Recorded passes([&] { replayed.training.passes(hyper); }, replayed.ctx);
    for (int step = 0; step < 4; ++step) {
      for (Workshop* w : {&eager, &replayed}) w->fill(std::uint64_t(step));
      eager.training.step(hyper);
      replayed.training.set_rate(hyper.lr);
      passes();
      EXPECT_EQ(replayed.training.loss(), eager.training.loss()) << step;
    }
    EXPECT_EQ(replayed.weights(), eager.weights());
    for (std::size_t n = 0; n < 4; ++n) EXPECT_EQ(replayed.moments(n), eager.moments(n));
  }
}

}  // namespace
}  // namespace headroom::engine
