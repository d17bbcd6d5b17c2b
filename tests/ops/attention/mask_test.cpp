#include "ops/attention/mask_name.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace headroom::attention {
namespace {

bool sees_by_definition(const Mask& m, std::int64_t lq, std::int64_t lk, std::int64_t i, std::int64_t j) {
  if (m.kind == MaskKind::full) return true;
  const auto position = i + (m.align == Align::bottom_right ? lk - lq : 0);
  return j <= position + m.ahead && (m.kind == MaskKind::causal || j > position - m.window);
}

TEST(Mask, TilesAgreeWithElements) {
  for (auto mask : {Mask::full(), Mask::causal(), Mask::causal(Align::top_left), Mask::sliding(1), Mask::sliding(5), Mask::sliding(40),
                    Mask::sliding(3, Align::top_left), Mask::sliding(1, Align::bottom_right, 4), Mask::sliding(6, Align::top_left, 30)})
    for (std::int64_t lq : {1, 2, 7, 33})
      for (std::int64_t lk : {1, 3, 8, 40}) {
        const Band band = band_of(mask, lq, lk);
        double visible = 0;
        for (std::int64_t i = 0; i < lq; ++i)
          for (std::int64_t j = 0; j < lk; ++j) {
            const bool expected = sees_by_definition(mask, lq, lk, i, j);
            visible += expected;
            ASSERT_EQ(band.sees(i, j), expected) << name_of(mask) << " " << lq << "x" << lk << " " << i << "," << j;
            ASSERT_EQ(i >= band.first_row(j) && i < band.last_row(j), expected) << name_of(mask) << " column view";
          }
        EXPECT_EQ(band.visible(), visible);
        for (std::int64_t rows : {1, 4, 16})
          for (std::int64_t width : {1, 4, 8}) {
            for (std::int64_t r = 0; r < lq; r += rows) {
              const TileSpan s = band.key_tiles(r, rows, width);
              for (std::int64_t i = r; i < std::min(r + rows, lq); ++i)
                for (std::int64_t j = 0; j < lk; ++j) {
                  const auto tile = j / width;
                  if (tile < s.begin || tile >= s.end) { ASSERT_FALSE(band.sees(i, j)); }
                  if (tile >= s.plain_begin && tile < s.plain_end) { ASSERT_TRUE(band.sees(i, j)); }
                }
            }
            for (std::int64_t k = 0; k < lk; k += width) {
              const TileSpan s = band.row_tiles(k, width, rows);
              for (std::int64_t j = k; j < std::min(k + width, lk); ++j)
                for (std::int64_t i = 0; i < lq; ++i) {
                  const auto tile = i / rows;
                  if (tile < s.begin || tile >= s.end) { ASSERT_FALSE(band.sees(i, j)); }
                  if (tile >= s.plain_begin && tile < s.plain_end) { ASSERT_TRUE(band.sees(i, j)); }
                }
            }
          }
      }
}

// Kernels count in 32 bits; at the longest that they serve nothing overflows.
TEST(Mask, ThirtyTwoBitsSayTheSame) {
  constexpr std::int64_t most = longest_in_32_bits;
  for (auto mask : {Mask::full(), Mask::causal(), Mask::causal(Align::top_left), Mask::sliding(1), Mask::sliding(1ll << 40),
                    Mask::sliding(5, Align::bottom_right, 1ll << 40), Mask::sliding(1ll << 29, Align::top_left, 1ll << 29)})
    for (auto [lq, lk] : {std::pair<std::int64_t, std::int64_t>{most, most}, {1, most}, {most, 1}, {most, most / 3}, {40, 30}}) {
      const Band wide = band_of(mask, lq, lk);
      const BandOf<std::int32_t> narrow = in_32_bits(wide);
      for (std::int64_t at : {std::int64_t(0), std::int64_t(1), lq / 2, lq - 1}) {
        ASSERT_EQ(narrow.first(int(at)), wide.first(at)) << name_of(mask) << " " << lq << "x" << lk << " row " << at;
        ASSERT_EQ(narrow.last(int(at)), wide.last(at)) << name_of(mask) << " " << lq << "x" << lk << " row " << at;
        const TileSpan a = narrow.key_tiles(int(at), 64, 128), b = wide.key_tiles(at, 64, 128);
        ASSERT_TRUE(a.begin == b.begin && a.end == b.end && a.plain_begin == b.plain_begin && a.plain_end == b.plain_end) << name_of(mask);
      }
      for (std::int64_t at : {std::int64_t(0), std::int64_t(1), lk / 2, lk - 1}) {
        ASSERT_EQ(narrow.first_row(int(at)), wide.first_row(at)) << name_of(mask) << " " << lq << "x" << lk << " key " << at;
        ASSERT_EQ(narrow.last_row(int(at)), wide.last_row(at)) << name_of(mask) << " " << lq << "x" << lk << " key " << at;
      }
    }
  EXPECT_THROW(in_32_bits(band_of(Mask::full(), most + 1, 4)), Error);
}

// A kernel that knows a mask's reach when it is compiled asks less, and is told the same.
TEST(Mask, AKnownReachSaysTheSame) {
  const auto check = []<Reach known>(const Mask& mask) {
    const Band b = band_of(mask, 37, 51);
    ASSERT_EQ(b.reach, known);
    for (std::int64_t i = 0; i < 37; ++i) {
      EXPECT_EQ(b.first<known>(i), b.first(i));
      EXPECT_EQ(b.last<known>(i), b.last(i));
      for (std::int64_t j = 0; j < 51; ++j)
        EXPECT_EQ(j >= b.open_first<known>(i) && j < b.open_last<known>(i), b.sees(i, j)) << name_of(mask) << " " << i << "," << j;
    }
    for (std::int64_t j = 0; j < 51; ++j) {
      EXPECT_EQ(b.first_row<known>(j), b.first_row(j));
      EXPECT_EQ(b.last_row<known>(j), b.last_row(j));
      for (std::int64_t i = 0; i < 37; ++i)
        EXPECT_EQ(i >= b.open_first_row<known>(j) && i < b.open_last_row<known>(j), b.sees(i, j)) << name_of(mask) << " " << i << "," << j;
    }
  };
  check.operator()<Reach::all>(Mask::full());
  check.operator()<Reach::before>(Mask::causal());
  check.operator()<Reach::before>(Mask::causal(Align::top_left));
  check.operator()<Reach::run>(Mask::sliding(4));
  check.operator()<Reach::run>(Mask::sliding(9, Align::top_left, 3));
}

TEST(Mask, NamesGoBothWays) {
  for (auto name : {"full", "causal", "causal:top-left", "window:256", "window:1:top-left", "window:256+128", "window:1+1:top-left"}) {
    const auto mask = mask_named(name);
    ASSERT_TRUE(mask) << name;
    EXPECT_EQ(name_of(*mask), name);
  }
  for (auto name : {"", "Full", "window", "window:", "window:0", "window:-4", "window:3x", "full:top-left", "causal:", "window:3+",
                    "window:3+0", "window:+3", "window:3+-1"})
    EXPECT_FALSE(mask_named(name)) << name;
}

}  // namespace
}  // namespace headroom::attention
