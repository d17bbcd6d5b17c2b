// The factors of dropout for a tile, a vector of Philox at a time: ops/attention/dropout.h says which probability has which.
#if defined(HEADROOM_CPU_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADROOM_CPU_DROPOUT_INL_H_
#undef HEADROOM_CPU_DROPOUT_INL_H_
#else
#define HEADROOM_CPU_DROPOUT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "ops/attention/cpu/tile_product-inl.h"
#include "ops/attention/dropout.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::attention::HWY_NAMESPACE {

// The words of eight counters: keys key … key + 7 of one row, or rows row … row + 7 of one key. All eight begin where `place` is a multiple of 8.
template <bool keys_along>
HWY_INLINE void eight_counters(const HeadDraws& draws, std::uint32_t row, std::uint32_t key, std::uint64_t (*words)[8]) {
  const hn::CappedTag<std::uint64_t, 8> wide;
  [[maybe_unused]] const hn::Repartition<std::uint32_t, decltype(wide)> halves;
  const auto times = [&](auto x, auto by) HWY_ATTR {  // multiplies their low halves; the high ones are 0
    if constexpr (hn::MaxLanes(wide) == 1)
      return hn::Mul(x, by);
    else
      return hn::MulEven(hn::BitCast(halves, x), hn::BitCast(halves, by));
  };
  const auto multiplier = hn::Set(wide, short_multiplier), low = hn::Set(wide, 0xffffffffu);
  for (std::size_t i = 0; i < 8; i += hn::Lanes(wide)) {
    const std::uint32_t key_at = draws.of_keys + HeadDraws::place(key), row_at = draws.of_rows + HeadDraws::place(row);
    auto x0 = keys_along ? hn::And(hn::Iota(wide, key_at + i), low) : hn::Set(wide, key_at),
         x1 = keys_along ? hn::Set(wide, row_at) : hn::And(hn::Iota(wide, row_at + i), low);
    std::uint32_t round_key = draws.key;
    for (int round = 0; round < short_rounds; ++round) {
      const auto product = times(x0, multiplier);
      x0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product), x1), hn::Set(wide, round_key));
      x1 = hn::And(product, low);
      round_key += short_step;
    }
    hn::StoreU(x0, wide, words[0] + i);
    hn::StoreU(x1, wide, words[1] + i);
  }
}

struct Cells {  // rows and keys of a tile, [begin, end)
  std::int64_t row_begin, row_end, key_begin, key_end;
};

// Eight neighbours, from `first` on, of which those in [begin, end) are written to `to`, which is where `begin` belongs.
HWY_INLINE void write_eight(const std::uint64_t* words, int shift, std::uint32_t below, float kept, std::int64_t first, std::int64_t begin,
                            std::int64_t end, float* to) {
  const auto factor = [&](std::int64_t k) { return (std::uint32_t(words[k]) >> shift) % draw_steps < below ? 0.0f : kept; };
  if (first >= begin && first + 8 <= end) {
    for (std::int64_t k = 0; k < 8; ++k) to[first - begin + k] = factor(k);
  } else {
    for (std::int64_t k = std::max<std::int64_t>(begin - first, 0); k < std::min<std::int64_t>(end - first, 8); ++k)
      to[first - begin + k] = factor(k);
  }
}

// `to` becomes 0 where dropped, `kept` elsewhere: [key − key_begin][row − row_begin], or with keys_along [row − row_begin][key − key_begin].
template <bool keys_along>
void fill_factors(const Dropping& dropping, std::int64_t pair, const Cells& c, float kept, float* to, std::int64_t pitch) {
  std::uint64_t words[2][8];
  const HeadDraws draws = dropping.draws.of_head(std::uint32_t(pair));
  const std::uint32_t below = dropping.dropout.below;
  for (std::int64_t row16 = c.row_begin / 16 * 16; row16 < c.row_end; row16 += 16)
    for (std::int64_t key16 = c.key_begin / 16 * 16; key16 < c.key_end; key16 += 16)
      for (std::int64_t i = 0; i < 8; ++i) {  // the eight that lie across
        eight_counters<keys_along>(draws, std::uint32_t(keys_along ? row16 + i : row16), std::uint32_t(keys_along ? key16 : key16 + i),
                                   words);
        for (std::int64_t half = 0; half < 2; ++half)
          for (std::int64_t word = 0; word < 2; ++word) {
            const std::int64_t row = row16 + 8 * half, key = key16 + 8 * word;
            if constexpr (keys_along) {
              if (row + i >= c.row_begin && row + i < c.row_end)
                write_eight(words[word], int(16 * half), below, kept, key, c.key_begin, c.key_end, to + (row + i - c.row_begin) * pitch);
            } else {
              if (key + i >= c.key_begin && key + i < c.key_end)
                write_eight(words[word], int(16 * half), below, kept, row, c.row_begin, c.row_end, to + (key + i - c.key_begin) * pitch);
            }
          }
      }
}

}  // namespace headroom::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
