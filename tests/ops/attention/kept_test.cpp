// dS that the Hopper backward keeps past head dim 128: a place of its own for every block that a row sees, and no more memory than is said.
#include <gtest/gtest.h>

#include <vector>

#include "base/divide.h"
#include "base/random.h"
#include "ops/attention/attention.h"
#include "ops/attention/sm90/bwd_kept.h"

namespace headroom::attention::sm90::backward {
namespace {

Problem of(std::int64_t batch, std::int64_t heads, std::int64_t kv_heads, std::int64_t len_q, std::int64_t len_k, Mask mask) {
  Problem p;
  p.batch = batch, p.heads = heads, p.kv_heads = kv_heads, p.len_q = len_q, p.len_k = len_k, p.head_dim = 256, p.mask = mask;
  p.precision = {DType::bf16};
  return p;
}

TEST(AttentionKept, EveryBlockHasAPlaceOfItsOwn) {
  const Random random{.seed = 90};
  std::uint64_t drawn = 0;
  const auto below = [&](std::int64_t n) { return std::int64_t(random.bits(drawn++) % std::uint64_t(n)); };
  for (int trial = 0; trial < 2000; ++trial) {
    const Mask masks[] = {Mask::full(), Mask::causal(), Mask::causal(Align::top_left), Mask::sliding(1 + below(700)),
                          Mask::sliding(1 + below(300), Align::bottom_right, below(400))};
    const std::int64_t len_q = 1 + below(1500), len_k = 1 + below(1500);
    const Problem p = of(1, 1, 1, len_q, len_k, masks[trial % 5]);
    SCOPED_TRACE(fmt::format("{} rows, {} keys, {}", len_q, len_k, name_of(p.mask)));
    const Kept kept = kept_ranges(p, 132).shape;
    const Band band = p.band();
    std::vector<bool> taken(std::size_t(kept.blocks_of_head));
    int seen_by_rows = 0, seen_by_keys = 0;
    for (int m = 0; m < ceil_div(len_q, kept_side); ++m) {
      const TileSpan seen = band.key_tiles(std::int64_t(m) * kept_side, kept_side, kept_side);
      for (int n = seen.begin; n < seen.end; ++n, ++seen_by_rows) {
        const int at = kept.place(m, n, seen.begin);
        ASSERT_GE(at, 0);
        ASSERT_LT(at, kept.blocks_of_head);
        ASSERT_FALSE(taken[std::size_t(at)]) << m << ", " << n;
        taken[std::size_t(at)] = true;
      }
    }
    for (int n = 0; n < ceil_div(len_k, kept_side); ++n) {  // what one kernel writes the other reads
      const TileSpan rows = band.row_tiles(std::int64_t(n) * kept_side, kept_side, kept_side);
      for (int m = rows.begin; m < rows.end; ++m, ++seen_by_keys) {
        const TileSpan seen = band.key_tiles(std::int64_t(m) * kept_side, kept_side, kept_side);
        ASSERT_TRUE(n >= seen.begin && n < seen.end) << m << ", " << n;
      }
    }
    ASSERT_EQ(seen_by_rows, seen_by_keys);
    if (p.mask.kind != MaskKind::window) {
      ASSERT_LE(kept.blocks_of_head - seen_by_rows, 2);  // the last rows may see fewer
    }
  }
}

TEST(AttentionKept, RangesCoverAllHeadsAndFit) {
  struct Asked {
    Problem p;
    std::int64_t pairs, heads, count;
  };
  const Mask full = Mask::full(), causal = Mask::causal();
  for (const Asked& a : {Asked{of(16, 8, 8, 1024, 1024, full), 128, 1, 1},
                         {of(4, 8, 8, 4096, 4096, full), 8, 1, 4},
                         {of(1, 8, 8, 16384, 16384, full), 1, 1, 8},    // half a gigabyte holds one head
                         {of(1, 8, 8, 16384, 16384, causal), 2, 1, 4},  // and two causal ones
                         {of(1, 8, 8, 32768, 32768, full), 0, 0, 0},    // none
                         {of(1, 8, 8, 32768, 32768, Mask::sliding(1024)), 3, 1, 3},
                         {of(1, 72, 1, 2048, 2048, causal), 1, 36, 2},  // query heads in two ranges: sums go on
                         {of(4, 8, 1, 8192, 8192, causal), 2, 2, 8},
                         {of(1, 8, 1, 1 << 19, 1 << 19, Mask::sliding(64)), 0, 0, 0},  // sums between ranges would take a gibibyte
                         {of(1, 1, 1, 1, 1, full), 1, 1, 1}}) {
    SCOPED_TRACE(fmt::format("{} × {} heads on {}, {} positions, {}", a.p.batch, a.p.heads, a.p.kv_heads, a.p.len_q, name_of(a.p.mask)));
    const KeptRanges r = kept_ranges(a.p, 132);
    EXPECT_EQ(r.pairs, a.pairs);
    EXPECT_EQ(r.heads, a.heads);
    EXPECT_EQ(r.count, a.count);
    EXPECT_LE(r.pairs * r.heads * r.shape.blocks_of_head * kept_block_bytes, kept_bytes_at_most);
    if (r.heads < a.p.group()) { EXPECT_LE(r.pairs * ceil_div(a.p.len_k, kept_side) * unfinished_tile_bytes, unfinished_bytes_at_most); }
    if (r.count > 0) { EXPECT_EQ(ceil_div(a.p.batch * a.p.kv_heads, r.pairs) * ceil_div(a.p.group(), r.heads), r.count); }
  }
}

}  // namespace
}  // namespace headroom::attention::sm90::backward
