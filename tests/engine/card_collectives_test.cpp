// Collectives of GPUs, over host memory: every element right in order, whatever the pieces, and the host's own words where ranks differ.
#include "engine/exchange/card_collectives.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/convert.h"
#include "dist/threads.h"
#include "engine/exchange/collectives.h"
#include "tests/dist/values.h"

namespace headroom {
namespace {

using dist::in_order;
using dist::value_of;
using dist::values_of;

template <class T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

template <class T>
void everything(CardCollectives& cards, int rank, int ranks, DType type, std::int64_t count) {
  for (const int divisor : {1, ranks}) {
    auto sum = values_of<T>(rank, count);
    cards.all_reduce(sum.data(), count, type, divisor, {});
    const auto whole = values_of<T>(rank, count * ranks);
    std::vector<T> part(std::size_t(count), T{});
    cards.reduce_scatter(whole.data(), part.data(), count, type, divisor, {});
    for (std::int64_t i = 0; i < count; ++i) {
      ASSERT_TRUE(same_bits(sum[std::size_t(i)], in_order<T>(ranks, i, divisor))) << "all_reduce of " << count << ", element " << i;
      ASSERT_TRUE(same_bits(part[std::size_t(i)], in_order<T>(ranks, rank * count + i, divisor)))
          << "reduce_scatter of " << count << ", element " << i;
    }
  }
  const auto mine = values_of<T>(rank, count * ranks);
  std::vector<T> gathered(std::size_t(count * ranks), T{}), exchanged = gathered;
  cards.all_gather(mine.data(), gathered.data(), count, type, {});
  cards.exchange(mine.data(), exchanged.data(), count, type, {});
  auto in_place = std::vector<T>(std::size_t(count * ranks), T{});
  std::copy_n(mine.begin(), count, in_place.begin() + rank * count);
  cards.all_gather(in_place.data() + rank * count, in_place.data(), count, type, {});
  for (int r = 0; r < ranks; ++r)
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = std::size_t(r * count + i);
      ASSERT_TRUE(same_bits(gathered[at], value_of<T>(r, i))) << "all_gather of " << count;
      ASSERT_TRUE(same_bits(in_place[at], value_of<T>(r, i))) << "all_gather of " << count << " in place";
      ASSERT_TRUE(same_bits(exchanged[at], value_of<T>(r, rank * count + i))) << "exchange of " << count;
    }
  for (int root = 0; root < ranks; ++root) {
    auto all = values_of<T>(rank, count);
    cards.broadcast(all.data(), count, type, root, {});
    for (std::int64_t i = 0; i < count; ++i) ASSERT_TRUE(same_bits(all[std::size_t(i)], value_of<T>(root, i))) << "broadcast of " << count;
  }
}

TEST(CardCollectives, AreInOrderForEverySizeAndNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 4}) {
    dist::as_threads(
        ranks,
        [&](dist::Comm& comm) {
          // Pieces of 1280 bytes: everything beyond goes in several; and some that hold all.
          for (const std::size_t staging : {std::size_t(ranks) * 2 * 1280 + 100, std::size_t(ranks) * 2 << 20})
            for (const std::int64_t count : {0, 1, 3, 255, 257, 641, 5003}) {
              CardCollectives cards(dist::Cards::over(comm, staging), 0);
              everything<float>(cards, comm.rank(), ranks, DType::f32, count);
              everything<bf16>(cards, comm.rank(), ranks, DType::bf16, count);
              everything<f16>(cards, comm.rank(), ranks, DType::f16, count);
            }
        },
        std::chrono::seconds(60));
  }
}

TEST(CardCollectives, TooLittleStagingIsRefusedInWords) {
  dist::as_threads(2, [&](dist::Comm& comm) {
    try {
      dist::Cards::over(comm, 100);
      FAIL();
    } catch (const Error& e) { EXPECT_STREQ(e.what(), "staging_bytes is 100: at least 4096 are needed"); }
  });
}

TEST(CardCollectives, ACallOnAGpuAndOneOnTheHostAreDifferentCalls) {
  dist::as_threads(2, [&](dist::Comm& comm) {
    Collectives calls(comm);
    float x = 1;
    if (comm.rank() == 0) {  // no GPU was joined: no collective call, and none is begun
      EXPECT_THROW(calls.next_on({}), Error);
    }
    calls.join_gpus([&] { return std::make_unique<CardCollectives>(dist::Cards::over(comm, 1 << 16), 0); });
    calls.join_gpus([]() -> std::unique_ptr<CardCollectives> { throw Error(Code::bad_argument, "joined twice"); });
    if (comm.rank() == 0) calls.next_on({});
    std::string said;
    try {
      calls.all_reduce(&x, 1, DType::f32, Reduction::sum);
    } catch (const Differs& e) { said = e.what(); }
    EXPECT_EQ(said, "ranks ask for different calls: rank 0 for all_reduce of 1 fp32, sum, on a GPU, rank 1 for all_reduce of 1 fp32, sum");
    calls.next_on({});
    calls.all_reduce(&x, 1, DType::f32, Reduction::mean);
    EXPECT_EQ(x, 1.f);
    said.clear();
    try {
      comm.rank() == 0 ? calls.barrier() : calls.join_gpus([] { return nullptr; });
    } catch (const Differs& e) { said = e.what(); }
    EXPECT_EQ(said, "ranks ask for different calls: rank 0 for barrier, rank 1 for joining the GPUs");
  });
}

}  // namespace
}  // namespace headroom
