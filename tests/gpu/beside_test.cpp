// Calls across the edge of libheadroom_cuda.so, with both sides in this program: what returns, what is thrown, and what a callback throws.
#include "gpu/beside.h"

#include <gtest/gtest.h>

#include <span>
#include <stdexcept>

#include "gpu/caller.h"
#include "gpu/range.h"

namespace headroom::beside_test {

std::string joined(const std::string& a, int b) { return a + std::to_string(b); }
int sum(std::span<const int> all) {
  int total = 0;
  for (const int n : all) total += n;
  return total;
}
void refuse(const char* why) { throw Error({Code::out_of_memory, "a file", 7}, why); }
void take_all_memory() { throw std::bad_alloc(); }
void be_wrong() { throw std::out_of_range("index 7 of 3"); }
void fail_otherwise() { throw std::runtime_error("of another kind"); }
void throw_a_number() { throw 7; }
bool ended_well = true;
int twice(const std::function<void()>& work) {
  ended_well = false;
  work();
  work();
  ended_well = true;
  return 2;
}
struct Counter {
  explicit Counter(int first) : n(first) {}
  int after(int more) const { return n + more; }
  ~Counter() { ++gone; }
  int n = -1;
  static inline int gone = 0;
};

template <auto f>
const auto& across() {  // as the door sets it
  beside::slot<f>.set(beside::offer<f>().enter);
  return beside::call<f>;
}

TEST(Beside, ResultsAndArgumentsCross) {
  EXPECT_EQ(across<joined>()("a long text that is no short string: ", 12), "a long text that is no short string: 12");
  const int numbers[] = {1, 2, 3};
  EXPECT_EQ(across<sum>()(numbers), 6);
}

TEST(Beside, WhatTheLibraryThrowsIsThrownHere) {
  try {
    across<refuse>()("no room");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "no room");
    EXPECT_EQ(e.at.code, Code::out_of_memory);
    EXPECT_STREQ(e.at.file, "a file");
    EXPECT_EQ(e.at.line, 7);
  }
  EXPECT_THROW(across<take_all_memory>()(), std::bad_alloc);
}

// No kind of failure is told as another's: a mistake of ours is no failed call of CUDA's.
template <auto f>
std::string of_type(auto&& same) {
  try {
    across<f>()();
  } catch (const Error& e) { return std::string("Error ") + e.what(); } catch (const std::exception& e) {
    return same(e) ? e.what() : std::string("another type: ") + e.what();
  }
  return "nothing";
}
TEST(Beside, WhatIsNoErrorOfOursKeepsItsTypeAndText) {
  EXPECT_EQ(of_type<be_wrong>([](auto& e) { return dynamic_cast<const std::logic_error*>(&e) != nullptr; }), "index 7 of 3");
  EXPECT_EQ(of_type<fail_otherwise>([](auto& e) { return dynamic_cast<const std::runtime_error*>(&e) != nullptr; }), "of another kind");
  EXPECT_EQ(of_type<throw_a_number>([](auto& e) { return dynamic_cast<const std::runtime_error*>(&e) != nullptr; }),
            "an exception of an unknown type in libheadroom_cuda.so");
}

TEST(Beside, WhatACallbackThrowsReturnsThroughTheLibraryAsItWas) {
  int calls = 0;
  const std::function<void()> well = [&] { ++calls; };
  EXPECT_EQ(across<twice>()(well), 2);
  EXPECT_EQ(calls, 2);
  const std::function<void()> badly = [&]() -> void {
    ++calls;
    throw std::out_of_range("mine");
  };
  EXPECT_THROW(across<twice>()(badly), std::out_of_range);
  EXPECT_EQ(calls, 3) << "the library stops at once";
  EXPECT_FALSE(ended_well);
}

TEST(Beside, AClassMayBeMadeAndEndedByTheLibrary) {
  alignas(Counter) std::byte room[sizeof(Counter)];
  auto* const at = reinterpret_cast<Counter*>(room);
  across<beside::construct<Counter, int>>()(at, 40);
  EXPECT_EQ(across<&Counter::after>()(at, 2), 42);
  across<beside::destroy<Counter>>()(at);
  EXPECT_EQ(Counter::gone, 1);
}

int host_checks = 0, ranges_open = 0;
void heard_host_check(const void*, const char*) { ++host_checks; }
void heard_push(const char*) { ++ranges_open; }
void heard_pop() { --ranges_open; }
template <auto f, auto listener>
void hear() {  // the library's side of f
  static_assert(std::is_same_v<beside::SignatureOf<f>, beside::SignatureOf<listener>>);
  beside::slot<f>.set(beside::offer<listener>().enter);
}

TEST(Beside, HostMemoryIsAskedAboutOnceAContextWasMadeThroughUs) {
  hear<check_host_memory, heard_host_check>();
  const int here = 0;
  check_host_memory(&here, "x");
  EXPECT_EQ(host_checks, 0) << "a program that uses no card must not wake its driver";
  noted_cuda_use();
  check_host_memory(&here, "x");
  EXPECT_EQ(host_checks, 1);
}

TEST(Beside, EveryRangeReachesTheLibrary) {
  hear<push_range, heard_push>();
  hear<pop_range, heard_pop>();
  push_range("forward");
  EXPECT_EQ(ranges_open, 1);
  pop_range();
  EXPECT_EQ(ranges_open, 0);
}

TEST(Beside, TheStampTellsSizesApart) {
  struct Small {
    int a;
  };
  struct Large {
    int a, b;
  };
  EXPECT_NE(beside::stamp_of_types<const Small&>(), beside::stamp_of_types<const Large&>());
  EXPECT_NE(beside::stamp_of_types<int>(), (beside::stamp_of_types<int, int>()));
}

}  // namespace headroom::beside_test
