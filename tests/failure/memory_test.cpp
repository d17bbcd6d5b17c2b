// The ground under everything when memory runs out: arenas with a ledger, blocks, threads.
#include "base/threads.h"
#include "memory/arena.h"
#include "memory/block.h"
#include "tests/failure/allocations.h"

namespace headroom::allocations {
namespace {

Outcome walk_with_a_ledger() {
  Ledger ledger;
  Block block(1 << 16);
  Arena arena(block.data(), block.bytes(), &ledger);
  for (int layer = 0; layer < 40; ++layer) {  // the scopes' braces write to the ledger too, and must not fail
    auto scope = arena.scope();
    arena.make({"x", layer}, DType::f32, {10});
    auto inner = arena.scope();
    arena.make({"y", layer}, DType::f32, {20});
    arena.make({"z", layer}, DType::f32, {30});
  }
  EXPECT_EQ(ledger.live_bytes(), 0u);
  EXPECT_EQ(ledger.at_peak().size(), 3u);
  return Outcome::done;
}

Outcome share_out() {
  Threads threads(3);
  std::atomic<int> sum = 0;
  threads.share(100, [&](std::int64_t piece, int) { sum += int(piece); });
  EXPECT_EQ(sum, 4950);
  return Outcome::done;
}

TEST(OutOfMemory, ALedgerStaysWhole) {
  fail_each(Source::operator_new, walk_with_a_ledger, [] { walk_with_a_ledger(); });
  fail_each(Source::arena, walk_with_a_ledger, [] { walk_with_a_ledger(); });
}

TEST(OutOfMemory, ThreadsThatStartedAreJoined) {
  fail_each(Source::operator_new, share_out, [] { share_out(); });
}

}  // namespace
}  // namespace headroom::allocations
