// A long call may be ended by its program: asked in the caller's thread, between pieces, and the context serves the next call.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/capi/call.h"

namespace headroom::capi {
namespace {

struct Asked {
  headroom_context* context = nullptr;
  std::thread::id by;
  int times = 0, answer = 0;
  headroom_status computing = HEADROOM_OK;
};

int on_question(void* user) {
  auto& a = *static_cast<Asked*>(user);
  a.by = std::this_thread::get_id();
  ++a.times;
  if (a.context) {
    Call inner(a.context, problem_of(8, 8));
    a.computing = inner.forward(a.context);
  }
  return a.answer;
}

class Stop : public testing::Test {
 protected:
  Stop() { headroom_stop_when(on_question, &asked); }
  ~Stop() override { headroom_stop_when(nullptr, nullptr); }
  // A thread that has not been asked in the last 100 ms.
  headroom_status in_a_new_thread(Call& call, std::thread::id* id = nullptr) {
    headroom_status status = HEADROOM_OK;
    std::thread caller([&] {
      if (id) *id = std::this_thread::get_id();
      status = call.forward(context.get());
      said = headroom_last_error();
    });
    caller.join();
    return status;
  }
  OwnedContext context = make_context(2);
  Asked asked;
  std::string said;
};

TEST_F(Stop, EndsTheCallAndTheContextServesTheNext) {
  for (const char* variant : {"flash", "plain"}) {
    Call call(context.get(), problem_of(512, 16, variant)), alone(context.get(), problem_of(512, 16, variant));
    asked.answer = 1;
    std::thread::id caller;
    EXPECT_EQ(in_a_new_thread(call, &caller), HEADROOM_INTERRUPTED);
    EXPECT_NE(said.find("stopped by the program that called"), std::string::npos) << said;
    EXPECT_EQ(asked.by, caller) << "no thread of the pool";
    asked.answer = 0;
    EXPECT_EQ(in_a_new_thread(call), HEADROOM_OK) << said;
    headroom_stop_when(nullptr, nullptr);
    const int times = asked.times;
    EXPECT_EQ(in_a_new_thread(alone), HEADROOM_OK) << said;
    EXPECT_EQ(asked.times, times);
    EXPECT_EQ(call.o, alone.o);
    headroom_stop_when(on_question, &asked);
  }
}

TEST_F(Stop, IsAskedAtMostTenTimesASecond) {
  Call call(context.get(), problem_of(256, 16));
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < 200; ++i) ASSERT_EQ(call.forward(context.get()), HEADROOM_OK);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  EXPECT_GE(asked.times, 1);
  EXPECT_LE(asked.times, 1 + int(10 * seconds) + 1);
}

TEST_F(Stop, MayNotComputeWhileItIsAsked) {
  asked.context = context.get();
  Call call(context.get(), problem_of(128, 16));
  EXPECT_EQ(in_a_new_thread(call), HEADROOM_OK) << said;
  EXPECT_EQ(asked.computing, HEADROOM_UNSUPPORTED) << "it would wait for itself";
}

}  // namespace
}  // namespace headroom::capi
