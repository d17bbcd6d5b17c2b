// PyTorch's generator of the CPU, MT19937, moved on without its numbers.
#pragma once
#include <cstdint>

namespace headroom::dry {

struct Generator {  // the head of what torch.Generator.get_state gives
  static constexpr int length = 624, ahead = 397;
  std::uint64_t seed;
  std::int32_t left, seeded;  // words until the next round begins, and one
  std::uint64_t next, words[length];

  bool is_sound() const { return left >= 1 && left <= length && next <= length; }
  void skip(std::uint64_t count) {
    std::uint32_t x[length];
    for (int i = 0; i < length; ++i) x[i] = std::uint32_t(words[i]);
    std::uint64_t there = left - 1;
    while (count > there) {
      count -= there;
      begin_round(x);
      there = length;
      next = 0;
    }
    next += count;
    left = std::int32_t(there - count + 1);
    for (int i = 0; i < length; ++i) words[i] = x[i];
  }

 private:
  static std::uint32_t mixed(std::uint32_t high, std::uint32_t low) {
    return ((high & 0x80000000u) | (low & 0x7fffffffu)) >> 1 ^ (low & 1 ? 0x9908b0dfu : 0);
  }
  static void begin_round(std::uint32_t* x) {
    for (int i = 0; i < length - ahead; ++i) x[i] = x[i + ahead] ^ mixed(x[i], x[i + 1]);
    for (int i = length - ahead; i < length - 1; ++i) x[i] = x[i + ahead - length] ^ mixed(x[i], x[i + 1]);
    x[length - 1] = x[ahead - 1] ^ mixed(x[length - 1], x[0]);
  }
};

}  // namespace headroom::dry
