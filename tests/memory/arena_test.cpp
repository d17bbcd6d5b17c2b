#include "memory/arena.h"

#include <gtest/gtest.h>

#include "memory/block.h"

namespace headroom {
namespace {

void walk(Arena& a) {  // the same calls, dry or wet
  auto x = a.make("x", DType::f32, {10, 10});
  {
    auto scope = a.scope();
    auto phase = a.in_phase(Phase::saved);
    a.make("p", DType::bf16, {1000});
    auto inner = a.scope();
    a.make({"s", 3}, DType::f32, {3});
  }
  a.make("y", DType::u8, {1});
  (void)x;
}

TEST(Arena, DryPeakIsTheWetPeak) {
  Ledger dry_ledger, wet_ledger;
  Arena dry(&dry_ledger);
  walk(dry);
  Block block(dry.peak());
  Arena wet(block.data(), block.bytes(), &wet_ledger);
  walk(wet);
  EXPECT_EQ(dry.peak(), 512u + 2048u + 256u);
  EXPECT_EQ(wet.peak(), dry.peak());
  EXPECT_EQ(wet_ledger.peak_bytes(), dry.peak());
  ASSERT_EQ(wet_ledger.at_peak().size(), 3u);
  EXPECT_EQ(wet_ledger.at_peak()[2].name.full(), "block 3 s");
  EXPECT_EQ(wet_ledger.at_peak()[1].phase, Phase::saved);
  EXPECT_EQ(wet_ledger.live_bytes(), 512u + 256u);
  EXPECT_EQ(wet_ledger.standing().size(), 2u);
}

TEST(Arena, OneByteTooFewIsRefusedAndNamesTheTensor) {
  Arena measured;
  walk(measured);
  Block block(measured.peak());
  Arena tight(block.data(), measured.peak() - 1);
  try {
    walk(tight);
    FAIL() << "an arena one byte too small took everything";
  } catch (const Error& e) {
    EXPECT_EQ(e.at.code, Code::out_of_memory);
    EXPECT_NE(std::string(e.what()).find("block 3 s"), std::string::npos) << e.what();
  }
}

TEST(Arena, TensorsDoNotOverlapAndAreAligned) {
  Block block(4096);
  Arena a(block.data(), block.bytes());
  auto x = a.make("x", DType::u8, {300}), y = a.make("y", DType::u8, {1});
  EXPECT_EQ(std::uintptr_t(x.data) % 256, 0u);
  EXPECT_GE(y.as<char>(), x.as<char>() + 300);
}

TEST(Arena, APeakCanBeStartedAfresh) {
  Ledger ledger;
  Arena a(&ledger);
  a.make("x", DType::u8, {256});
  {
    auto scope = a.scope();
    a.make("big", DType::u8, {4096});
  }
  a.start_peak();
  a.make("y", DType::u8, {256});
  EXPECT_EQ(a.peak(), 512u);
  EXPECT_EQ(ledger.peak_bytes(), 512u);
}

TEST(Block, RefusalIsAnError) { EXPECT_THROW(Block(std::size_t(1) << 62), Error); }

}  // namespace
}  // namespace headroom
