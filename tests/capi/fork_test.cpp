// A child of fork has none of its parent's threads: attention must go on there, also while the parent's pool was busy.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/capi/call.h"
#include "tests/sanitizers.h"

namespace headroom::capi {
namespace {

constexpr bool may_fork = !thread_sanitizer;  // which ends a child that starts threads
// GCC 12's allocator for the address sanitizer keeps the locks that another thread held at a fork.
constexpr bool may_fork_beside_threads = may_fork && !address_sanitizer;

// What the child returned, or a description of how it ended.
int status_of_child(int (*body)(void*), void* what) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);  // a child that waits for threads that are gone would wait for ever
    _exit(body(what));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

struct Shared {
  headroom_context* context;
  Call* alone;
};

int attends(void* shared) {
  const auto& s = *static_cast<Shared*>(shared);
  for (int round = 0; round < 3; ++round) {
    Call call(s.context, s.alone->problem);
    if (call.forward(s.context) != HEADROOM_OK || call.backward(s.context) != HEADROOM_OK) return 1;
    if (call.o != s.alone->o || call.dq != s.alone->dq || call.dk != s.alone->dk || call.dv != s.alone->dv) return 2;
  }
  headroom_context_destroy(s.context);
  return 0;
}

TEST(Fork, AChildAttendsAfterItsParentDid) {
  if (!may_fork) GTEST_SKIP() << "the thread sanitizer forbids threads in a child";
  const auto context = make_context(4);
  Call call(context.get(), problem_of(96, 16));
  ASSERT_EQ(call.forward(context.get()), HEADROOM_OK);
  ASSERT_EQ(call.backward(context.get()), HEADROOM_OK);
  Shared shared{context.get(), &call};
  EXPECT_EQ(status_of_child(attends, &shared), 0);
  EXPECT_EQ(status_of_child([](void* s) { return status_of_child(attends, s); }, &shared), 0) << "a grandchild";
  EXPECT_EQ(call.forward(context.get()), HEADROOM_OK) << "the parent goes on";
}

TEST(Fork, AChildAttendsWhileItsParentIsInTheMiddleOfACall) {
  if (!may_fork_beside_threads) GTEST_SKIP() << "the sanitizers' own locks do not survive a fork beside threads";
  const auto context = make_context(3);
  Call call(context.get(), problem_of(96, 16));
  ASSERT_EQ(call.forward(context.get()), HEADROOM_OK);
  ASSERT_EQ(call.backward(context.get()), HEADROOM_OK);
  Shared shared{context.get(), &call};
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    Call own(context.get(), problem_of(64, 16));
    while (!stop) own.forward(context.get());
  });
  for (int i = 0; i < 10; ++i) EXPECT_EQ(status_of_child(attends, &shared), 0);
  stop = true;
  busy.join();
}

}  // namespace
}  // namespace headroom::capi
