// Calls that another thread makes: in order, with their errors, and not without end.
#include "engine/exchange/begun_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <stdexcept>
#include <thread>
#include <vector>

namespace headroom {
namespace {

TEST(BegunCalls, AreMadeInOrderWhileTheCallerGoesOn) {
  std::promise<void> gate;
  const auto open = gate.get_future().share();
  std::vector<int> made;
  BegunCalls calls;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(calls.next(), i + 1);
    calls.begin([&, i] { open.wait(), made.push_back(i); });
  }
  EXPECT_FALSE(calls.is_made(1));
  gate.set_value();
  calls.wait(100);
  EXPECT_TRUE(calls.is_made(100));
  ASSERT_EQ(made.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(made[std::size_t(i)], i);
}

TEST(BegunCalls, ThrowAtWaitAndTheNextOnesAreMade) {
  BegunCalls calls;
  int made = 0;
  calls.begin([] { throw std::runtime_error("ranks differ"); });
  calls.begin([&] { ++made; });
  calls.wait_for_all();
  for (int again = 0; again < 2; ++again) {
    try {
      again ? (void)calls.is_made(1) : calls.wait(1);
      FAIL() << "the first call threw";
    } catch (const std::runtime_error& e) { EXPECT_STREQ(e.what(), "ranks differ"); }
  }
  calls.wait(2);
  EXPECT_EQ(made, 1);
}

TEST(BegunCalls, WaitForRoomWhereTooManyAreUnderWay) {
  std::promise<void> gate;
  const auto open = gate.get_future().share();
  std::atomic<std::int64_t> begun{0};
  BegunCalls calls;
  auto caller = std::async(std::launch::async, [&] {
    for (std::int64_t i = 0; i < BegunCalls::most + 10; ++i) calls.begin([&] { open.wait(); }), ++begun;
  });
  while (begun < BegunCalls::most) std::this_thread::yield();
  EXPECT_EQ(caller.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  EXPECT_EQ(begun, BegunCalls::most);
  gate.set_value();
  caller.get();
  calls.wait_for_all();
  EXPECT_EQ(calls.next(), BegunCalls::most + 11);
}

TEST(BegunCalls, ThoseThatAreLeftAreMadeAtTheEnd) {
  int made = 0;
  {
    BegunCalls calls;
    for (int i = 0; i < 20; ++i) calls.begin([&] { ++made; });
  }
  EXPECT_EQ(made, 20);
}

}  // namespace
}  // namespace headroom
