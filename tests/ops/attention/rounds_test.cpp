// How key tiles of a backward in a fixed order are dealt (sm90/bwd_dealt.h), on paper.
#include <gtest/gtest.h>

#include "ops/attention/sm90/bwd_dealt.h"

namespace headroom::attention::sm90::backward {
namespace {

TEST(AttentionRounds, HoweverFewMultiprocessors) {
  for (const std::int64_t units : {1, 2, 3, 16, 132})
    for (std::int64_t key_tiles = 1; key_tiles < 300; ++key_tiles)
      for (const bool causal : {false, true}) {
        constexpr std::int64_t pairs = 6;
        const Rounds r = rounds_of(pairs, key_tiles, 2 * key_tiles, causal, units);
        ASSERT_GE(r.together, 1) << units << " multiprocessors, " << key_tiles << " key tiles";
        ASSERT_LE(r.together * r.heads, units) << "blocks wait for each other, so all must be on the card";
        ASSERT_GE(r.together * r.heads * r.count, pairs * key_tiles) << "every key tile has its turn";
      }
}

}  // namespace
}  // namespace headroom::attention::sm90::backward
