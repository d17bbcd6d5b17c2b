// Numbers for different ops: two ops that cost the same are one kind.
#pragma once
#include <cstdint>
#include <cstring>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "ops/op.h"

namespace headroom::engine {

// The numbers by which ops differ here.
inline auto cost_of(const OpCall& s) {
  const auto& [m, n, k, batch] = s.cost.sides;
  const auto& [launches, again, behind, in_turn, older, tf32_products, units_us] = s.cost.on_card;
  return std::tuple(s.cost.flops, s.cost.bytes, s.cost.link_bytes, s.times, m, n, k, batch, launches, again, behind, in_turn, older,
                    tf32_products, units_us, makes_weights(s), s.precision.dtype, s.precision.math, s.work, s.making);
}

class Kinds {  // numbers different ops
 public:
  explicit Kinds(std::vector<OpCall>& all) : all_(all) {}
  std::uint32_t of(const OpCall& s) {
    std::uint64_t mixed = 0;
    std::apply([&](auto... x) { ((mixed = (mixed + bits(x)) * 0x9E3779B97F4A7C15u, mixed ^= mixed >> 29), ...); }, cost_of(s));
    for (auto [at, end] = known_.equal_range(mixed); at != end; ++at)
      if (cost_of(all_[at->second]) == cost_of(s)) return at->second;
    known_.emplace(mixed, std::uint32_t(all_.size()));
    all_.push_back(s);
    return std::uint32_t(all_.size() - 1);
  }

 private:
  template <class T>
  static std::uint64_t bits(T x) {
    std::uint64_t b = 0;
    std::memcpy(&b, &x, sizeof x);
    return b;
  }
  std::vector<OpCall>& all_;
  std::unordered_multimap<std::uint64_t, std::uint32_t> known_;
};

}  // namespace headroom::engine
