// Gradients that are never held, on a card: the product that forms one updates its weight.
#pragma once
#include <gtest/gtest.h>

#include "engine/pass/recorded.h"
#include "tests/engine/lively.h"

namespace headroom::engine {

// Of a recipe's model, precision and keep level: it learns as with gradients in half and as on a CPU, in a graph to the bit, and takes its forecast.
inline void expect_never_held_learns_the_same(Recipe r, int steps, const Device& card) {
  r.holding = {Masters::halves, Updating::during, Gradients::half};
  Workshop half(r, 2, card);
  r.holding.gradients = Gradients::none;
  Workshop none(r, 2, card), recorded(r, 2, card), on_cpu(r, 2, {});
  const adamw::Hyper h{.lr = 5e-4, .clip = 0};  // at four times that rounding alone moves the loss by 3 %
  for (Workshop* w : {&half, &none, &recorded}) w->training.warm();
  EXPECT_EQ(none.weights(), on_cpu.weights()) << "warming changes nothing";
  const Recorded passes([&] { recorded.training.passes(h); }, recorded.ctx);
  for (int step = 0; step < steps; ++step) {
    for (Workshop* w : {&half, &none, &recorded, &on_cpu}) w->fill(std::uint64_t(step) % 3);
    for (Workshop* w : {&half, &none, &on_cpu}) w->training.step(h);
    recorded.training.set_rate(h.lr);
    passes();
  }
  EXPECT_EQ(recorded.weights(), none.weights());
  EXPECT_EQ(recorded.moments(1), none.moments(1));
  EXPECT_NEAR(none.training.loss(), half.training.loss(), 0.01 * half.training.loss());
  EXPECT_NEAR(none.training.loss(), on_cpu.training.loss(), 0.01 * half.training.loss());
  EXPECT_EQ(none.arena.peak(), none.predicted);
  EXPECT_LT(none.predicted, half.predicted);
}

}  // namespace headroom::engine
