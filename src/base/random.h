// Random numbers by counter: value i of a stream depends on (seed, i) alone, so any thread may make any part in any order.
#pragma once
#include <cmath>
#include <cstdint>
#include <numbers>

#ifdef __CUDACC__
#define HEADROOM_RANDOM __host__ __device__
#else
#define HEADROOM_RANDOM
#endif

namespace headroom {

struct Random {
  std::uint64_t seed = 0;

  HEADROOM_RANDOM std::uint64_t bits(std::uint64_t i) const {  // splitmix64 of a seed-dependent sequence
    std::uint64_t z = mix(seed + 0x9e3779b97f4a7c15ull) + i * 0x9e3779b97f4a7c15ull;
    return mix(z);
  }
  HEADROOM_RANDOM double uniform(std::uint64_t i) const { return double(bits(i) >> 11) * 0x1p-53; }  // [0, 1)
  std::uint64_t below(std::uint64_t i, std::uint64_t n) const {                                      // 0 … n-1
    return std::uint64_t((unsigned __int128)bits(i) * n >> 64);
  }
  HEADROOM_RANDOM float normal(std::uint64_t i) const {  // Box–Muller, one of the pair
    const double u = 1.0 - uniform(2 * i), v = uniform(2 * i + 1);
    return float(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
  }
  HEADROOM_RANDOM Random stream(std::uint64_t id) const { return {mix(seed ^ mix(id + 0xd1b54a32d192ed03ull))}; }

 private:
  HEADROOM_RANDOM static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
};

}  // namespace headroom
