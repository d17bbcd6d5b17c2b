// What a run of steps leaves behind, of one rank or of threads as ranks, each of which takes the bytes of the forecast.
#pragma once
#include <gtest/gtest.h>

#include <array>

#include "dist/threads.h"
#include "tests/engine/workshop.h"

namespace headroom::engine {

inline constexpr std::array shardings = {Sharding::none, Sharding::optimizer, Sharding::gradients, Sharding::everything};

struct Taken {  // in whole values
  std::vector<double> losses, norms;
  std::vector<float> weights;
  std::vector<char> moments;  // bytes
  friend bool operator==(const Taken&, const Taken&) = default;
};

inline Taken values_of(Workshop& w) {  // every rank calls
  Taken t;
  ParamStore& store = w.training.store();
  for (const Param& p : store.params()) {
    const auto values = store.values(p);
    t.weights.insert(t.weights.end(), values.begin(), values.end());
    for (std::size_t n = 0; n < p.state.size(); ++n) {
      const auto bytes = store.state(p, n);
      t.moments.insert(t.moments.end(), bytes.begin(), bytes.end());
    }
  }
  return t;
}

inline Taken taken(Workshop& w, int steps, const adamw::Hyper& hyper) {
  std::vector<double> losses, norms;
  const Recipe& r = w.training.recipe();
  for (int step = 0; step < steps; ++step) {
    for (int micro = 0; micro < r.micro_batches; ++micro)
      w.fill(std::uint64_t(100 * step + r.micro_of_all(micro, w.training.rank())), micro);
    w.training.step(hyper);
    losses.push_back(w.training.loss());
    norms.push_back(w.training.state(adamw::grad_norm));
  }
  Taken t = values_of(w);
  t.losses = std::move(losses), t.norms = std::move(norms);
  return t;
}

inline void expect_forecast(Workshop& w) {
  const Forecast f = forecast(w.training.recipe(), w.device, w.place.threads().count());
  EXPECT_EQ(w.ledger.peak_bytes(), f.peak_bytes) << "rank " << w.training.rank();
  EXPECT_EQ(w.arena.peak(), w.predicted);
  EXPECT_EQ(w.ledger.live_bytes(), f.standing_bytes);
  const HostKeep* host = w.training.host_keep();
  EXPECT_EQ(host ? host->host_bytes() : 0, f.host_bytes);
}

inline Taken alone(const Recipe& r, int steps, const adamw::Hyper& hyper) {
  Workshop w(r);
  const Taken t = taken(w, steps, hyper);
  expect_forecast(w);
  return t;
}

inline std::vector<Taken> together(const Recipe& r, int steps, const adamw::Hyper& hyper) {  // its ranks, not all with as many threads
  std::vector<Taken> all{std::size_t(r.ranks.count)};
  dist::as_threads(r.ranks.count, [&](dist::Comm& comm) {
    Workshop w(r, 1 + comm.rank() % 2, {}, &comm);
    all[std::size_t(comm.rank())] = taken(w, steps, hyper);
    expect_forecast(w);
  });
  return all;
}

inline void expect_same(const Taken& a, const Taken& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_TRUE(a.weights == b.weights);
  EXPECT_TRUE(a.moments == b.moments);
}

}  // namespace headroom::engine
