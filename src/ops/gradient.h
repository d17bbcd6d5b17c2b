// Whether an op overwrites a gradient or adds to it.
#pragma once
#include <cstdint>

namespace headroom {

enum class Gradient : std::uint8_t { overwrite, accumulate };

constexpr float beta_of(Gradient g) { return g == Gradient::accumulate ? 1.0f : 0.0f; }

}  // namespace headroom
