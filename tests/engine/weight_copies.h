// Steps in fp8 that keep the 8-bit copies of weights, beside those that quantise before each use: bits, bytes, counts.
#pragma once
#include <gtest/gtest.h>

#include "tests/engine/workshop.h"

namespace headroom::engine {

inline void expect_copies_kept_change_no_bit(Recipe r, const Device& device, int steps) {
  SCOPED_TRACE(changed_in_words(r));
  Workshop made(r, 2, device);
  r.holding.copies = WeightCopies::kept;
  Workshop kept(r, 2, device);
  const adamw::Hyper h = r.served({.lr = 1e-3});
  for (Workshop* w : {&made, &kept}) w->training.warm();
  for (int step = 0; step < steps; ++step)
    for (Workshop* w : {&made, &kept}) {
      for (int micro = 0; micro < r.micro_batches; ++micro) w->fill(std::uint64_t(10 * step + micro), micro);
      w->training.step(h);
    }
  EXPECT_EQ(kept.training.loss(), made.training.loss());
  EXPECT_EQ(kept.weights(), made.weights());
  for (std::size_t n = 0; n < 4; ++n) EXPECT_EQ(kept.moments(n), made.moments(n));
  for (Workshop* w : {&made, &kept}) {
    EXPECT_EQ(w->arena.peak(), w->predicted);
    EXPECT_EQ(w->ledger.peak_bytes(), forecast(w->training.recipe(), w->device, w->place.threads().count()).peak_bytes);
  }
  std::int64_t copies = 0;
  for (const Param& p : kept.training.store().params()) {
    EXPECT_EQ(bool(p.as_is), p.spec.multiplied && p.spec.layer >= 0) << p.spec.full_name();
    if (p.as_is) copies += std::int64_t(p.as_is.bytes() + p.transposed.bytes());
  }
  EXPECT_GT(copies, 0);
  EXPECT_LE(std::int64_t(kept.predicted), std::int64_t(made.predicted) + copies + 256 * 4 * 16) << "only copies are more";
  // Copies of weights are counted where they are made: each in every step once, of one layer and tensor.
  for (const QuantisedCount& c : kept.training.quantised())
    for (const Param& p : kept.training.store().params())
      if (p.as_is && p.spec.layer == c.layer && quantised_weight(p.spec.role) == c.which) {
        EXPECT_EQ(c.numbers, 2 * p.spec.shape.count()) << names_of<Quantised>.of(c.which);
      }
}

}  // namespace headroom::engine
