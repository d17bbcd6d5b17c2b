// How the tiles of a causal forward are dealt in turn (sm90/deal.h), on paper.
#include "ops/attention/sm90/deal.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace headroom::attention::sm90 {
namespace {

TEST(AttentionDeal, ThereAndBackEveryTileHasOneBlock) {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    const int blocks = 1 + int(random() % 140), tiles = blocks + int(random() % 900);
    std::vector<int> dealt(std::size_t(tiles), 0);
    for (int block = 0; block < blocks; ++block) {
      EXPECT_LT(tile_in_turn(0, block, blocks), tiles) << "a block without a first tile waits for one";
      for (int round = 0; round * blocks < tiles; ++round)
        if (const int tile = tile_in_turn(round, block, blocks); tile < tiles) ++dealt[std::size_t(tile)];
    }
    EXPECT_EQ(dealt, std::vector<int>(std::size_t(tiles), 1)) << tiles << " tiles, " << blocks << " blocks";
  }
}

double causal(std::int64_t pairs, int row_tiles, double bytes_of_pair, int keys_of_tile = 4) {
  return time_longest_first(pairs, row_tiles, bytes_of_pair, 132, 2.6, [&](int tile) { return (tile + 1) * keys_of_tile; });
}

TEST(AttentionDeal, PairsThatFillWholeRoundsStay) {
  constexpr double small = 1024 * 256;       // bytes of K and V of 1024 keys of 64
  EXPECT_EQ(causal(64, 4, small), 0);        // 128 pairs of tiles for 132 units
  EXPECT_EQ(causal(200, 4, small), 0);       // keys of all heads do not fit in L2
  EXPECT_EQ(causal(48, 4, 1024 * 1024), 0);  // the same of few heads
  EXPECT_EQ(causal(2, 128, small), 0);       // more tiles of rows than are counted
}

TEST(AttentionDeal, FewPairsAreSoonerOverLongestFirst) {
  // 48 heads are 96 pairs: every pair is a long and a short tile, 20 key tiles and two ends, beside 36 idle units. Longest first some block has 16 and 4 or 12 and 8.
  const double of_48 = causal(48, 4, 1024 * 256), of_80 = causal(80, 4, 1024 * 256);
  EXPECT_GT(of_48, 16 + 2.6);
  EXPECT_LT(of_48, 0.97 * (20 + 2 * 2.6));
  EXPECT_LT(of_80, 0.97 * 2 * (20 + 2 * 2.6));  // 160 pairs are two rounds
  EXPECT_GT(of_80, 80 * (40 + 4 * 2.6) / 132);  // an even share
}

}  // namespace
}  // namespace headroom::attention::sm90
