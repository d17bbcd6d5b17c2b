// The requests of a run, played again: the allocator's rules give the run's own addresses, and other layouts give other needs only where blocks of
// one size were there to choose from.
#include "dry/replay.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace replay_test {

namespace {

using namespace headroom::dry;
constexpr std::uint64_t mib = 1 << 20;

// A run as PyTorch's history has it.
class History {
 public:
  History& segment(std::uint64_t at, std::uint64_t bytes) { return add(RequestIs::segment_taken, at, bytes); }
  History& take(std::uint64_t at, std::uint64_t bytes, std::uint32_t stream = 0) { return add(RequestIs::taken, at, bytes, stream); }
  History& give(std::uint64_t at) {
    add(RequestIs::unused, at, 0);
    return add(RequestIs::given, at, 0);
  }
  History& add(RequestIs what, std::uint64_t at, std::uint64_t bytes, std::uint32_t stream = 0) {
    requests.push_back({at, bytes, std::uint32_t(what), stream});
    return *this;
  }
  std::vector<Request> requests;
};

constexpr std::uint64_t a = 1024 * mib, b = 2048 * mib, c = 512 * mib;

TEST(Replay, RoundsSplitsAndMergesAsTheAllocatorDoes) {
  History run;
  run.segment(a, 2 * mib).take(a, 1).take(a + 512, 1000);  // small ones share a segment
  run.segment(b, 20 * mib).take(b, 4 * mib).take(b + 4 * mib, 5 * mib);
  run.segment(c, 14 * mib).take(c, 13 * mib);  // its last MiB is too small to be split off
  run.give(b).give(b + 4 * mib).take(b, 9 * mib);
  const auto spread = spread_of(run.requests);
  ASSERT_TRUE(spread);
  EXPECT_EQ(spread->run.reserved, 36 * mib);
  EXPECT_EQ(spread->run.allocated, 512 + 1024 + 9 * mib + 14 * mib);
  EXPECT_EQ(spread->choices, 0);
  EXPECT_EQ(spread->layouts, 1);
}

// Two free blocks of 12 MiB: one stands alone, the other has 20 free beside it once it is given back. The lower is taken; which of them that is
// decides whether 32 MiB are there in one piece afterwards.
History two_of_a_size(std::uint64_t alone, std::uint64_t with_room) {
  History run;
  run.segment(alone, 12 * mib).take(alone, 12 * mib);
  run.segment(with_room, 32 * mib).take(with_room, 32 * mib).give(with_room);
  run.take(with_room, 12 * mib).take(with_room + 12 * mib, 20 * mib).give(with_room).give(alone);
  const std::uint64_t lower = std::min(alone, with_room);
  run.take(lower, 12 * mib).give(with_room + 12 * mib);
  if (lower == alone)
    run.take(with_room, 32 * mib);
  else
    run.segment(4096 * mib, 32 * mib).take(4096 * mib, 32 * mib);
  return run;
}

// roundup_power2_divisions:4: between 4 and 8 MiB sizes are whole MiB, between 16 and 32 multiples of 4.
TEST(Replay, SizesInPartsOfAPowerOfTwoAreFoundOut) {
  History run;
  run.segment(a, 20 * mib).take(a, 7 * mib + 1).take(a + 8 * mib, 5 * mib);
  run.segment(b, 20 * mib).take(b, 17 * mib - 100).take(a + 13 * mib, 5 * mib);
  const auto spread = spread_of(run.requests);
  ASSERT_TRUE(spread);
  EXPECT_EQ(spread->run.allocated, (8 + 5 + 20 + 5) * mib);
  EXPECT_EQ(spread->run.reserved, 40 * mib);
  History none;  // in no parts of a power of two
  none.segment(a, 20 * mib).take(a, 7 * mib + 1).take(a + 9 * mib, 5 * mib);
  EXPECT_FALSE(spread_of(none.requests));
}

// roundup_power2_divisions:[4:1,>:4]: below 8 MiB sizes are as ever, from there on quarters of a power of two.
TEST(Replay, SizesAreRoundedByWhatEachIntervalWasTold) {
  History run;
  run.segment(a, 20 * mib).take(a, 7 * mib + 1).take(a + 7 * mib + 512, 5 * mib);
  run.segment(b, 20 * mib).take(b, 17 * mib - 100);
  EXPECT_FALSE(spread_of(run.requests)) << "no one number rounds both";
  AllocatorSettings set;
  for (std::size_t i = 0; i < set.divisions.size(); ++i) set.divisions[i] = i < 3 ? 1 : 4;
  const auto spread = spread_of(run.requests, 0, {}, {}, set);
  ASSERT_TRUE(spread);
  EXPECT_EQ(spread->run.allocated, 7 * mib + 512 + (5 + 20) * mib);
}

// max_split_size_mb:64: larger blocks are not split, serve no small request, and none that leaves 20 MiB over.
TEST(Replay, BlocksAboveTheLargestThatIsSplitStayWhole) {
  History run;
  run.segment(a, 100 * mib).take(a, 99 * mib).give(a);
  run.segment(b, 30 * mib).take(b, 30 * mib).give(b).take(b, 10 * mib);  // not a's; what is smaller is split as ever
  run.take(a, 81 * mib).give(a);
  run.segment(c, 80 * mib).take(c, 80 * mib);  // a's would leave 20 MiB
  const auto spread = spread_of(run.requests, 0, {}, {}, {.max_split = 64 * mib});
  ASSERT_TRUE(spread);
  EXPECT_EQ(spread->run.reserved, 210 * mib);
  EXPECT_EQ(spread->run.allocated, (100 + 10) * mib);
  EXPECT_FALSE(spread_of(run.requests));
}

// max_split_size_mb:64 where memory runs out: the smallest unsplit block that is large enough goes back, or the largest until enough has; others stay.
TEST(Replay, UnsplitBlocksGoBackFirstWhereMemoryRunsOut) {
  constexpr std::uint64_t d = 4096 * mib, e = 5120 * mib, f = 6144 * mib, g = 7168 * mib;
  History run;
  run.segment(e, 12 * mib).take(e, 12 * mib).segment(f, 12 * mib).take(f, 12 * mib).give(e).give(f).take(e, 12 * mib);  // one of two
  run.segment(a, 100 * mib)
      .take(a, 100 * mib)
      .segment(b, 70 * mib)
      .take(b, 70 * mib)
      .segment(c, 20 * mib)
      .take(c, 20 * mib)
      .give(a)
      .give(b);
  run.add(RequestIs::segment_free, a, 100 * mib).segment(d, 76 * mib).take(d, 76 * mib);
  run.take(b, 70 * mib).segment(g, 36 * mib).take(g, 36 * mib);
  const auto spread = spread_of(run.requests, 230 * mib, {}, {}, {.max_split = 64 * mib});
  ASSERT_TRUE(spread);
  EXPECT_EQ(spread->run.reserved, 226 * mib);
  EXPECT_GT(spread->layouts, 1);
  EXPECT_EQ(spread->low.reserved, 226 * mib);
  EXPECT_EQ(spread->high.reserved, 226 * mib);
  EXPECT_EQ(spread->ran_out, 0);
  run.give(d).give(b).add(RequestIs::segment_free, d, 76 * mib).add(RequestIs::segment_free, b, 70 * mib);
  run.segment(a, 130 * mib).take(a, 130 * mib).take(f, 12 * mib);
  const auto both = spread_of(run.requests, 230 * mib, {}, {}, {.max_split = 64 * mib});
  ASSERT_TRUE(both);
  EXPECT_EQ(both->run.reserved, 226 * mib);
  EXPECT_EQ(both->high.reserved, 226 * mib);
  EXPECT_EQ(both->ran_out, 0);
}

// The same, but what is not split is too little together: then all that is free goes, though the request would fit beside some of it.
TEST(Replay, AllGoesBackWhereUnsplitBlocksAreTooLittle) {
  constexpr std::uint64_t d = 4096 * mib, e = 5120 * mib, f = 6144 * mib, g = 7168 * mib, h = 8192 * mib;
  History run;
  run.segment(e, 12 * mib).take(e, 12 * mib).segment(f, 12 * mib).take(f, 12 * mib).give(e).give(f).take(e, 12 * mib);  // one of two
  run.segment(a, 70 * mib).take(a, 70 * mib).segment(b, 30 * mib).take(b, 30 * mib).segment(c, 20 * mib).take(c, 20 * mib).give(a).give(b);
  for (const auto& [at, bytes] : {std::pair{a, 70 * mib}, {b, 30 * mib}, {f, 12 * mib}}) run.add(RequestIs::segment_free, at, bytes);
  run.segment(d, 110 * mib).take(d, 110 * mib);  // 70 of 110 MiB went back first
  run.segment(g, 30 * mib).take(g, 30 * mib).segment(h, 40 * mib).take(h, 40 * mib);
  const auto spread = spread_of(run.requests, 230 * mib, {}, {}, {.max_split = 64 * mib});
  ASSERT_TRUE(spread);
  EXPECT_EQ(spread->run.reserved, 212 * mib);
  EXPECT_GT(spread->layouts, 1);
  EXPECT_EQ(spread->low.reserved, 212 * mib);
  EXPECT_EQ(spread->high.reserved, 212 * mib);
}

// garbage_collection_threshold: above 90 MiB the large segments that are free for as long as the mean, or longer, go back before another is taken.
TEST(Replay, SegmentsGoBackAboveAThreshold) {
  constexpr std::uint64_t d = 4096 * mib;
  History run;
  run.segment(a, 40 * mib).take(a, 40 * mib).segment(b, 30 * mib).take(b, 30 * mib).segment(c, 30 * mib).take(c, 30 * mib);
  run.give(a).take(a, 40 * mib).give(a).give(b);  // 100 MiB; a is free for as long as b
  run.take(b, 30 * mib).give(b);                  // one request passed a by
  run.add(RequestIs::segment_free, a, 40 * mib).segment(d, 50 * mib).take(d, 50 * mib);
  const auto spread = spread_of(run.requests, 0, {}, {}, {.collects_above = 90 * mib});
  ASSERT_TRUE(spread);
  EXPECT_EQ(spread->run.reserved, 110 * mib);
  EXPECT_EQ(spread_of(run.requests)->run.reserved, 100 * mib);  // as if the program had emptied the cache: b went, too
  History emptied;                                              // below the threshold it is the program that empties the cache
  emptied.segment(a, 40 * mib).take(a, 40 * mib).segment(b, 30 * mib).take(b, 30 * mib).give(a).give(b);
  emptied.add(RequestIs::segment_free, a, 40 * mib).add(RequestIs::segment_free, b, 30 * mib).segment(c, 50 * mib).take(c, 50 * mib);
  const auto least = spread_of(emptied.requests, 0, {}, {}, {.collects_above = 90 * mib});
  ASSERT_TRUE(least);
  EXPECT_EQ(least->run.reserved, 70 * mib);
}

TEST(Replay, EqualBlocksMakeAnInterval) {
  const auto lucky = spread_of(two_of_a_size(a, b).requests), unlucky = spread_of(two_of_a_size(b, a).requests);
  ASSERT_TRUE(lucky && unlucky);
  EXPECT_EQ(lucky->choices, 1);
  EXPECT_GT(lucky->layouts, 1);
  EXPECT_EQ(lucky->run.reserved, 44 * mib);
  EXPECT_EQ(unlucky->run.reserved, 76 * mib);
  for (const auto& spread : {*lucky, *unlucky}) {  // the same requests, whatever addresses the run had
    EXPECT_EQ(spread.low.reserved, 44 * mib);
    EXPECT_EQ(spread.high.reserved, 76 * mib);
    EXPECT_EQ(spread.low.allocated, spread.high.allocated);
  }
}

TEST(Replay, WhereTheOldestSegmentIsTakenAddressesDecideNothing) {
  History run;  // b is older, and above a
  run.segment(b, 12 * mib).take(b, 12 * mib).segment(a, 12 * mib).take(a, 12 * mib).give(b).give(a).take(b, 12 * mib).take(a, 12 * mib);
  const auto spread = spread_of(run.requests);
  ASSERT_TRUE(spread);
  EXPECT_EQ(spread->choices, 0);
  EXPECT_EQ(spread->layouts, 1);
  EXPECT_EQ(spread->low.reserved, 24 * mib);
  EXPECT_EQ(spread->high.reserved, 24 * mib);
  History neither;
  neither.segment(a, 12 * mib).take(a, 12 * mib).segment(b, 12 * mib).take(b, 12 * mib).give(b).give(a).take(b, 12 * mib);
  EXPECT_FALSE(spread_of(neither.requests));
}

// As PyTorch 2.12: a's block is the older one until 8 MiB are cut off its begin, which are a new block, and take the rest in when they are given back.
TEST(Replay, WhereTheBlockThatWasMadeFirstIsTakenAddressesDecideNothing) {
  History run;
  run.segment(a, 20 * mib).take(a, 20 * mib).segment(b, 20 * mib).take(b, 20 * mib).give(a).take(a, 8 * mib).give(a).give(b);
  run.take(b, 20 * mib).take(a, 20 * mib);
  const auto spread = spread_of(run.requests);
  ASSERT_TRUE(spread);
  EXPECT_EQ(spread->choices, 0);
  EXPECT_EQ(spread->layouts, 1);
  EXPECT_EQ(spread->high.reserved, 40 * mib);
}

TEST(Replay, OfAShortRunTheVersionSaysWhichRuleIsItsOwn) {
  History run;  // a is the lower, the older and the first
  run.segment(a, 12 * mib).take(a, 12 * mib).segment(b, 12 * mib).take(b, 12 * mib).give(b).give(a).take(a, 12 * mib);
  const auto choices = [&](const char* torch) { return spread_of(run.requests, 0, {}, {}, {.torch = torch})->choices; };
  for (const char* lowest : {"", "2.4.1+cu121", "2.11.0", "a fork"}) EXPECT_EQ(choices(lowest), 1) << lowest;
  for (const char* by_age : {"2.12.1+cu130", "2.13.0a0+git1234567", "2.15.0", "3.0"}) EXPECT_EQ(choices(by_age), 0) << by_age;
  History other;  // b is the older: not by the rule of this version
  other.segment(b, 12 * mib).take(b, 12 * mib).segment(a, 12 * mib).take(a, 12 * mib).give(b).give(a).take(b, 12 * mib);
  EXPECT_TRUE(spread_of(other.requests, 0, {}, {}, {.torch = "2.11.0"})) << "a build of a later day";
}

// A workspace of 30 MiB, which a card may not ask for, lies between two tensors: without it the second takes no more than the first gave back.
TEST(Replay, BlocksThatACardMayNotAskForAreLeftOutAtTheLowerEnd) {
  History run;
  run.segment(a, 12 * mib).take(a, 12 * mib).segment(b, 30 * mib).take(b, 30 * mib).give(b).give(a).take(a, 12 * mib);
  run.take(b, 30 * mib).give(b);
  const std::vector<Workspace> workspaces{{1, 0, 30 * mib}, {3, 0, 30 * mib}};
  const std::vector<std::size_t> step_ends{2, 4};
  const auto as_it_was = spread_of(run.requests), spread = spread_of(run.requests, 0, step_ends, workspaces);
  ASSERT_TRUE(as_it_was && spread);
  EXPECT_EQ(as_it_was->low.reserved, 42 * mib);
  EXPECT_EQ(as_it_was->smaller, 0);
  EXPECT_EQ(spread->run.reserved, 42 * mib);
  EXPECT_EQ(spread->low.reserved, 12 * mib);
  EXPECT_EQ(spread->high.reserved, 42 * mib);
  EXPECT_EQ(spread->low.allocated, 12 * mib);
  EXPECT_EQ(spread->high.allocated, 42 * mib);
  EXPECT_EQ(spread->smaller, 2);
  EXPECT_EQ(spread->larger, 0);
  ASSERT_EQ(spread->steps.size(), 2u);
  EXPECT_EQ(spread->steps[0].low.reserved, 12 * mib);
  EXPECT_EQ(spread->steps[1].high.reserved, 42 * mib);
}

// The second workspace comes where the first was. A little larger, as a card may ask for it, it needs a segment of its own: of 44 to 58 MiB.
TEST(Replay, AWorkspaceThatACardMayAskForLargerNoLongerFitsWhatWasFreed) {
  History run;
  run.segment(a, 42 * mib).take(a, 42 * mib).give(a).take(a, 42 * mib).give(a);
  const std::vector<Workspace> workspace{{1, 42 * mib, 58 * mib}};
  const auto as_it_was = spread_of(run.requests), spread = spread_of(run.requests, 0, {}, workspace);
  ASSERT_TRUE(as_it_was && spread);
  EXPECT_EQ(as_it_was->high.reserved, 42 * mib);
  EXPECT_EQ(spread->run.reserved, 42 * mib);
  EXPECT_EQ(spread->low.reserved, 42 * mib);
  EXPECT_EQ(spread->high.reserved, (42 + 58) * mib);
  EXPECT_EQ(spread->smaller, 0);
  EXPECT_EQ(spread->larger, 1);
}

// A tensor that would have come where the workspace was splits a larger block, which another tensor lacks then.
TEST(Replay, WithoutAWorkspaceMoreMayBeReserved) {
  History run;
  run.segment(a, 12 * mib).take(a, 12 * mib).segment(b, 32 * mib).take(b, 32 * mib).give(a).give(b).take(a, 12 * mib).take(b, 32 * mib);
  const std::vector<Workspace> workspace{{0, 0, 12 * mib}};
  const auto spread = spread_of(run.requests, 0, {}, workspace);
  ASSERT_TRUE(spread);
  EXPECT_EQ(spread->run.reserved, 44 * mib);
  EXPECT_EQ(spread->high.reserved, 64 * mib);
}

TEST(Replay, StreamsDoNotShareBlocks) {
  History run;
  run.segment(a, 12 * mib).take(a, 12 * mib, 0).give(a);
  run.segment(b, 12 * mib).take(b, 12 * mib, 1);
  const auto spread = spread_of(run.requests);
  ASSERT_TRUE(spread);
  EXPECT_EQ(spread->run.reserved, 24 * mib);
}

// What a CUDA graph's pool has free stays there when the program empties its cache, as long as the graph is there.
TEST(Replay, AnEmptiedCacheLeavesPoolsAlone) {
  History run;
  run.segment(a, 12 * mib).take(a, 12 * mib, 1 | own_pool).give(a).segment(b, 12 * mib).take(b, 12 * mib).give(b);
  run.add(RequestIs::segment_free, b, 12 * mib).take(a, 12 * mib, 1 | own_pool).give(a);
  run.add(RequestIs::segment_free, a, 12 * mib, 1 | own_pool).segment(c, 12 * mib).take(c, 12 * mib, 2 | own_pool);  // the graph is gone
  const auto spread = spread_of(run.requests);
  ASSERT_TRUE(spread);
  EXPECT_EQ(spread->run.reserved, 24 * mib);
  EXPECT_EQ(spread->run.allocated, 12 * mib);
}

TEST(Replay, AnEmptiedCacheIsReservedNoMore) {
  History run;
  run.segment(a, 12 * mib).take(a, 12 * mib).segment(b, 20 * mib).take(b, 4 * mib).give(a);
  run.add(RequestIs::segment_free, a, 12 * mib).segment(c, 18 * mib).take(c, 18 * mib);
  const auto spread = spread_of(run.requests);
  ASSERT_TRUE(spread);
  EXPECT_EQ(spread->run.reserved, 38 * mib);
}

// A block is asked for at once after the cache was emptied, on a card with room for all: as PyTorch does where it tries cuDNN's kernels.
TEST(Replay, ACacheThatIsEmptiedBeforeARequestIsNotAFullCard) {
  History run;
  for (const std::uint64_t at : {a, b, c})
    run.segment(at, 40 * mib)
        .take(at, 40 * mib)
        .give(at)
        .add(RequestIs::segment_free, at, 40 * mib)
        .segment(at, 30 * mib)
        .take(at, 30 * mib);
  const std::vector<Workspace> workspaces{{0, 40 * mib, 44 * mib}};
  const auto spread = spread_of(run.requests, 1000 * mib, {}, workspaces);
  ASSERT_TRUE(spread);
  EXPECT_EQ(spread->run.reserved, 100 * mib);
  EXPECT_EQ(spread->high.reserved, 100 * mib);
}

TEST(Replay, EachStepHasItsOwnNeed) {
  History run;
  run.segment(a, 12 * mib).take(a, 12 * mib).segment(b, 40 * mib).take(b, 40 * mib).give(b);
  run.add(RequestIs::segment_free, b, 40 * mib).take(c, 1);
  run.requests.insert(run.requests.end() - 1, {c, 2 * mib, std::uint32_t(RequestIs::segment_taken), 0});
  const std::vector<std::size_t> step_ends{2, 3};
  const auto spread = spread_of(run.requests, 0, step_ends);
  ASSERT_TRUE(spread);
  EXPECT_EQ(spread->run.reserved, 52 * mib);
  ASSERT_EQ(spread->steps.size(), 2u);
  EXPECT_EQ(spread->steps[0].low.reserved, 52 * mib);
  EXPECT_EQ(spread->steps[1].high.reserved, 14 * mib) << "the cache was emptied before";
}

// With a limit between the two needs a layout either has room, or has it after its cache was emptied, or has not.
TEST(Replay, AtItsLimitTheCacheIsEmptiedFirst) {
  const auto run = two_of_a_size(a, b).requests;
  const auto with_room = spread_of(run, 76 * mib), emptied = spread_of(run, 64 * mib), without = spread_of(run, 50 * mib);
  ASSERT_TRUE(with_room && emptied && without);
  EXPECT_EQ(with_room->high.reserved, 76 * mib);
  EXPECT_EQ(with_room->ran_out, 0);
  EXPECT_EQ(emptied->high.reserved, 64 * mib);
  EXPECT_EQ(emptied->ran_out, 0);
  EXPECT_GT(without->ran_out, 0);
  EXPECT_LT(without->ran_out, without->layouts);
}

TEST(Replay, RulesThatAreNotTheRunsAreNoticed) {
  History other_size, other_place, unknown, twice, unasked;
  other_size.segment(a, 22 * mib).take(a, 4 * mib);
  other_place.segment(a, 20 * mib).take(a + mib, 4 * mib);
  unknown.segment(a, 20 * mib).take(a, 4 * mib).add(RequestIs::other, a, 0);
  twice.segment(a, 20 * mib).take(a, 4 * mib).give(a).give(a);
  unasked.segment(a, 20 * mib).take(a, 4 * mib).segment(b, 20 * mib);
  for (const History* run : {&other_size, &other_place, &unknown, &twice, &unasked}) EXPECT_FALSE(spread_of(run->requests));
}

}  // namespace

}  // namespace replay_test
