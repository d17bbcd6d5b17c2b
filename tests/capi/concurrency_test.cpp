// Many threads at one door: with one context and with contexts of their own, results are the bits of a lone call.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>

#include "tests/capi/call.h"

namespace headroom::capi {
namespace {

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Concurrency, ResultsAreThoseOfALoneCall) {
  const auto shared = make_context(3);
  const auto problem = [](std::uint64_t i) { return problem_of(40 + std::int64_t(i) * 8, 16, i % 2 ? "plain" : "flash"); };
  constexpr std::uint64_t callers = 8;
  std::vector<std::unique_ptr<Call>> alone;
  for (std::uint64_t i = 0; i < callers; ++i) {
    alone.push_back(std::make_unique<Call>(shared.get(), problem(i), i));
    ASSERT_EQ(alone[i]->forward(shared.get()), HEADROOM_OK);
    ASSERT_EQ(alone[i]->backward(shared.get()), HEADROOM_OK);
  }
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < callers; ++i)
    threads.emplace_back([&, i] {
      const auto own = make_context(2);
      for (int round = 0; round < 6; ++round) {
        headroom_context* context = round % 2 ? own.get() : shared.get();
        Call call(context, problem(i), i);
        EXPECT_EQ(call.forward(context), HEADROOM_OK) << headroom_last_error();
        EXPECT_EQ(call.backward(context), HEADROOM_OK) << headroom_last_error();
        EXPECT_TRUE(same_bits(call.o, alone[i]->o) && same_bits(call.lse, alone[i]->lse)) << "caller " << i;
        EXPECT_TRUE(same_bits(call.dq, alone[i]->dq) && same_bits(call.dk, alone[i]->dk) && same_bits(call.dv, alone[i]->dv))
            << "caller " << i;
      }
    });
  for (auto& t : threads) t.join();
}

TEST(Concurrency, EachThreadHearsItsOwnError) {
  const auto shared = make_context(2);
  std::vector<std::thread> threads;
  for (int i = 1; i <= 8; ++i)
    threads.emplace_back([&, i] {
      auto p = problem_of(-i, 16);
      for (int round = 0; round < 200; ++round) {
        std::size_t bytes = 0;
        EXPECT_EQ(headroom_attention_saved_bytes(shared.get(), &p, &bytes), HEADROOM_BAD_ARGUMENT);
        EXPECT_NE(std::string(headroom_last_error()).find("len_q -" + std::to_string(i) + " "), std::string::npos) << headroom_last_error();
      }
    });
  for (auto& t : threads) t.join();
}

}  // namespace
}  // namespace headroom::capi
