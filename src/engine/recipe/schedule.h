// The learning rate of a step: linear warm-up, then half a cosine down to a floor.
#pragma once
#include <cmath>
#include <cstdint>
#include <numbers>

namespace headroom::engine {

struct Schedule {
  double peak = 1e-3, floor = 1e-4;
  std::int64_t warmup = 100, steps = 1000;

  double at(std::int64_t step) const {  // step counts from 0
    if (step < warmup) return peak * double(step + 1) / double(warmup);
    if (step >= steps) return floor;
    const double progress = double(step - warmup) / double(steps - warmup);
    return floor + 0.5 * (peak - floor) * (1 + std::cos(std::numbers::pi * progress));
  }
};

}  // namespace headroom::engine
