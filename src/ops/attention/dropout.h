// Which probabilities dropout keeps: a function of seed, offset, batch, head, row and key alone, so every tiling and every kernel keeps the same.
//
// Philox (Salmon, Moraes, Dror and Shaw, 2011). 4x32-10 makes a call's key of seed and offset; under a head's key one counter of 2x32-7 gives 4 draws
// of 15 bits, for rows r and r + 8 of sixteen and keys k and k + 8 of sixteen: what a lane of a matrix instruction holds, whether its rows are queries
// or keys. A probability is dropped where its draw is below round(dropout · 32 768).
#pragma once
#include <cstdint>
#include <optional>

#include "ops/attention/mask.h"

namespace headroom::attention {

struct FourWords {
  std::uint32_t word[4];
};
struct TwoWords {
  std::uint32_t word[2];
};

HEADROOM_HD FourWords philox(std::uint32_t key0, std::uint32_t key1, FourWords x) {  // 4x32-10
  constexpr std::uint32_t multiplier0 = 0xd2511f53, multiplier1 = 0xcd9e8d57, step0 = 0x9e3779b9, step1 = 0xbb67ae85;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t(multiplier0) * x.word[0], b = std::uint64_t(multiplier1) * x.word[2];
    x = {{std::uint32_t(b >> 32) ^ x.word[1] ^ key0, std::uint32_t(b), std::uint32_t(a >> 32) ^ x.word[3] ^ key1, std::uint32_t(a)}};
    key0 += step0;
    key1 += step1;
  }
  return x;
}
constexpr int short_rounds = 7;  // the fewest in which its authors found no flaw
constexpr std::uint32_t short_multiplier = 0xd256d193, short_step = 0x9e3779b9;
HEADROOM_HD TwoWords philox_short(std::uint32_t key, TwoWords x) {  // 2x32-7
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int round = 0; round < short_rounds; ++round) {
    const std::uint64_t product = std::uint64_t(short_multiplier) * x.word[0];
    x = {{std::uint32_t(product >> 32) ^ key ^ x.word[1], std::uint32_t(product)}};
    key += short_step;
  }
  return x;
}

constexpr std::uint32_t draw_steps = 1 << 15;  // what a draw may be

struct HeadDraws {  // the random bits of one head of one row of the batch
  std::uint32_t key, of_keys, of_rows;

  // A row's and a key's part of a counter. Word (key / 8) % 2 is the key's. Its low half is the row's where (row / 8) % 2 is 0, else its high half;
  // the highest bit of either is not used.
  static HEADROOM_HD std::uint32_t place(std::uint32_t at) { return at / 16 * 8 + at % 8; }
  HEADROOM_HD TwoWords at(std::uint32_t row, std::uint32_t key_at) const {
    return philox_short(key, {{of_keys + place(key_at), of_rows + place(row)}});
  }
  HEADROOM_HD std::uint32_t draw(std::uint32_t row, std::uint32_t key_at) const {
    return (at(row, key_at).word[key_at / 8 % 2] >> (row / 8 % 2 * 16)) % draw_steps;
  }
};

struct Draws {  // one call's
  HeadDraws first;

  static HEADROOM_HD Draws of(std::uint32_t seed_low, std::uint32_t seed_high, std::uint32_t offset_low, std::uint32_t offset_high) {
    const FourWords x = philox(seed_low, seed_high, {{offset_low, offset_high, 0, 0}});
    return {{x.word[0], x.word[1], x.word[2]}};
  }
  HEADROOM_HD HeadDraws of_head(std::uint32_t pair) const {  // batch · heads + head
    return {first.key + pair, first.of_keys, first.of_rows};
  }
};

struct Dropout {                // one call's dropout, as kernels receive it
  const std::uint32_t* random;  // seed and offset, low words first, in memory that the kernel reads; null: the numbers below
  std::uint32_t seed[2], offset[2];
  std::uint32_t below;  // draws below it are dropped: of draw_steps
  float factor;         // multiplies what is kept: draw_steps / (draw_steps − below), so that the mean stays

  HEADROOM_HD Draws draws() const {
    if (random) return Draws::of(random[0], random[1], random[2], random[3]);
    return Draws::of(seed[0], seed[1], offset[0], offset[1]);
  }
};

struct Problem;
struct Extras;
Dropout dropout_of(const Problem&, const Extras&);  // below 0 and factor 1 where the problem has none

struct Dropping {  // for the CPU, which reads `random` itself; draws are the call's
  Dropout dropout;
  Draws draws;
};
inline float factor_of(const std::optional<Dropping>& d, std::int64_t pair, std::int64_t row, std::int64_t key) {  // a probability's
  if (!d) return 1;
  return d->draws.of_head(std::uint32_t(pair)).draw(std::uint32_t(row), std::uint32_t(key)) < d->dropout.below ? 0 : d->dropout.factor;
}
std::optional<Dropping> dropping_of(const Problem&, const Extras&);  // none if the problem has no dropout

// The factors of keys [first, last) in one row: 0 where dropped, `kept` elsewhere.
void dropout_factors(const Dropping&, std::int64_t pair, std::int64_t row, std::int64_t first, std::int64_t last, float kept, float* to);

}  // namespace headroom::attention
