#include "ops/attention/mask.h"

#include <gtest/gtest.h>

namespace headroom::attention {
namespace {

bool sees_by_definition(const Mask& m, std::int64_t lq, std::int64_t lk, std::int64_t i, std::int64_t j) {
  if (m.kind == MaskKind::full) return true;
  const auto position = i + (m.align == Align::bottom_right ? lk - lq : 0);
  return j <= position && (m.kind == MaskKind::causal || j > position - m.window);
}

TEST(Mask, TilesAgreeWithElements) {
  for (auto mask : {Mask::full(), Mask::causal(), Mask::causal(Align::top_left), Mask::sliding(1), Mask::sliding(5), Mask::sliding(40),
                    Mask::sliding(3, Align::top_left)})
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

TEST(Mask, NamesGoBothWays) {
  for (auto name : {"full", "causal", "causal:top-left", "window:256", "window:1:top-left"}) {
    const auto mask = mask_named(name);
    ASSERT_TRUE(mask) << name;
    EXPECT_EQ(name_of(*mask), name);
  }
  for (auto name : {"", "Full", "window", "window:", "window:0", "window:-4", "window:3x", "full:top-left", "causal:"})
    EXPECT_FALSE(mask_named(name)) << name;
}

}  // namespace
}  // namespace headroom::attention
