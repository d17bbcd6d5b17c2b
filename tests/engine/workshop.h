// A model with memory of its own: exactly what the forecast asked for and not a byte more.
#pragma once
#include "engine/data/feed_random.h"
#include "engine/forecast/forecast.h"
#include "engine/model/models.h"
#include "engine/model/plain_model.h"
#include "engine/store/transfer.h"
#include "gpu/place.h"

namespace headroom::engine {

inline Decoder tiny() {
  return decoder_of({.name = "tiny", .vocab = 19, .width = 16, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 4, .ffn = 24});
}

struct Workshop {
  Device device;
  Place place;
  std::size_t predicted;
  PlaceMemory memory;
  Ledger ledger;
  Arena arena;
  Context ctx;
  Training training;

  explicit Workshop(const Recipe& r, int thread_count = 2, Device d = {}, dist::Comm* comm = nullptr)
      : device(std::move(d)),
        place(device, thread_count),
        predicted(forecast_peak(r, device, thread_count)),
        memory(place.take(predicted)),
        arena(memory.data(), memory.bytes(), &ledger),
        ctx{arena, device, &place.threads(), place.stream()},
        training(r, ctx, comm) {
    training.initialise(7);
    fill(1);
  }
  void fill(std::uint64_t seed, int micro = 0) { feed_random(training, seed, micro); }
  std::vector<float> gradients() const { return gather(&Param::grad); }
  std::vector<float> weights() const {  // FP32, whole also where they lie in halves
    std::vector<float> all;
    HostView view(ctx);
    for (const Param& p : const_cast<Workshop*>(this)->training.store().params()) {
      const auto* values = reinterpret_cast<const float*>(p.rest ? view.read(p.copy, p.rest) : view.read(p.master));
      all.insert(all.end(), values, values + p.spec.shape.count());
    }
    return all;
  }
  std::vector<float> gather(Tensor Param::*which) const {
    std::vector<float> all;
    for (const Param& p : const_cast<Workshop*>(this)->training.store().params()) {
      if (!(p.*which)) continue;
      const auto values = values_of<float>(p.*which, ctx);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  std::vector<char> moments(std::size_t n) const {  // the bytes of the optimizer's n-th tensor of every weight that has one
    std::vector<char> all;
    for (const Param& p : const_cast<Workshop*>(this)->training.store().params())
      if (n < p.state.size()) {
        const std::size_t at = all.size();
        all.resize(at + p.state[n].bytes());
        read(p.state[n], all.data() + at, ctx);
      }
    return all;
  }
};

}  // namespace headroom::engine
