// Steps that are recorded once and repeated.
#pragma once
#include <gtest/gtest.h>

#include "engine/pass/recorded.h"
#include "tests/engine/lively.h"

namespace headroom::engine {

// Two micro-batches a step: the bits of launches one by one, with learning rates that were not known when the step was recorded.
inline void expect_recorded_steps_repeat(Recipe r, const Device& device) {
  r.micro_batches = 2;
  Workshop eager(r, 2, device), replayed(r, 2, device);
  adamw::Hyper h;
  replayed.training.warm();
  const Recorded passes([&] { replayed.training.passes(h); }, replayed.ctx);
  for (int step = 0; step < 4; ++step) {
    h.lr = 0.01 / (1 + step);
    for (int micro = 0; micro < 2; ++micro)
      for (Workshop* w : {&eager, &replayed}) w->fill(10 * std::uint64_t(step) + std::uint64_t(micro), micro);
    eager.training.step(h);
    replayed.training.set_rate(h.lr);
    passes();
    EXPECT_EQ(replayed.training.loss(), eager.training.loss()) << step;
  }
  EXPECT_EQ(replayed.weights(), eager.weights());
  EXPECT_EQ(replayed.moments(1), eager.moments(1));
  const auto one_by_one = eager.training.quantised(), in_graph = replayed.training.quantised();  // of fp8
  ASSERT_EQ(in_graph.size(), one_by_one.size());
  for (std::size_t i = 0; i < one_by_one.size(); ++i) EXPECT_EQ(in_graph[i].flushed, one_by_one[i].flushed);
}

}  // namespace headroom::engine
