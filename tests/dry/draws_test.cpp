// PyTorch's generator moved on, against the standard library's MT19937.
#include "dry/draws.h"

#include <gtest/gtest.h>

#include <random>

namespace {

using headroom::dry::Generator;

Generator seeded(std::uint32_t seed) {
  Generator g{.seed = seed, .left = 1, .seeded = 1, .next = 0, .words = {seed}};
  for (int i = 1; i < Generator::length; ++i) g.words[i] = std::uint32_t(1812433253u * (g.words[i - 1] ^ g.words[i - 1] >> 30) + i);
  return g;
}
std::uint32_t drawn(Generator& g) {
  g.skip(1);
  auto y = std::uint32_t(g.words[g.next - 1]);
  y ^= y >> 11;
  y ^= y << 7 & 0x9d2c5680u;
  y ^= y << 15 & 0xefc60000u;
  return y ^ y >> 18;
}

TEST(Draws, WhatComesAfterSkippedWordsIsWhatMt19937Gives) {
  for (const std::uint64_t count : {0ull, 1ull, 622ull, 623ull, 624ull, 625ull, 1247ull, 1248ull, 5000ull, 1234567ull}) {
    Generator g = seeded(5489);
    std::mt19937 truth(5489);
    for (int again = 0; again < 3; ++again) {  // from the middle of a round, too
      g.skip(count);
      truth.discard(count);
      ASSERT_TRUE(g.is_sound());
      EXPECT_EQ(drawn(g), truth()) << count << ", time " << again;
    }
  }
}

TEST(Draws, AStateOfAnotherFormIsNotSound) {
  Generator g = seeded(1);
  EXPECT_TRUE(g.is_sound());
  g.left = 0;
  EXPECT_FALSE(g.is_sound());
  g.left = 1, g.next = 625;
  EXPECT_FALSE(g.is_sound());
}

}  // namespace
