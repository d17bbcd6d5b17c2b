// Every allocation made to fail once. This binary's operator new counts what is live and can refuse its n-th call; arenas and
// blocks pass through fault::point (base/fault.h). A piece of work is run with its first passage failing, then its second, …,
// until a run in which nothing failed: each must end in a clean error, leave nothing behind, and hurt no later run.
#pragma once
#include <gtest/gtest.h>

#include <new>

#include "base/error.h"
#include "base/fault.h"

namespace headroom::allocations {

long live();                // pieces taken from operator new and not given back
std::size_t taken_bytes();  // from operator new since the program started
void refuse(long nth);      // the nth call from now throws bad_alloc; 0: none
bool refused();             // it came to that

enum class Source { operator_new, arena };
enum class Outcome { done, out_of_memory, something_else };

class Armed {
 public:
  Armed(Source s, long nth) : source_(s) { s == Source::arena ? fault::arm(nth) : refuse(nth); }
  ~Armed() { fault::disarm(), refuse(0); }
  bool struck() const { return source_ == Source::arena ? fault::countdown.load() == 0 : refused(); }

 private:
  Source source_;
};

// work() does the whole of it and returns an Outcome, or throws; verify() does it unharmed and checks the result.
template <class Work, class Verify>
void fail_each(Source source, Work&& work, Verify&& verify) {
  verify();  // what is made once and kept (a locale, a stream's buffer) is made here
  for (long nth = 1;; ++nth) {
    SCOPED_TRACE(testing::Message() << (source == Source::arena ? "arena or block, take " : "operator new, call ") << nth);
    ASSERT_LT(nth, 20000) << "no end of it";
    Outcome outcome = Outcome::something_else;
    const long before = live();
    bool struck = false;
    const char* unexpected = nullptr;
    try {
      const Armed armed(source, nth);
      try {
        outcome = work();
      } catch (...) {
        struck = armed.struck();
        throw;
      }
      struck = armed.struck();
    } catch (const Error& e) {
      if (e.at.code == Code::out_of_memory)
        outcome = Outcome::out_of_memory;
      else
        unexpected = "an error, but not that memory ran out";
    } catch (const std::bad_alloc&) { outcome = Outcome::out_of_memory; }
    const long after = live();
    ASSERT_EQ(after, before) << "something was left behind";
    ASSERT_EQ(unexpected, nullptr) << unexpected;
    ASSERT_NE(int(outcome), int(Outcome::something_else));
    if (!struck) {
      EXPECT_EQ(int(outcome), int(Outcome::done)) << "out of memory although nothing was refused";
      EXPECT_GT(nth, 1) << "the work takes nothing here: this test cannot fail";
      return;
    }
    verify();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace headroom::allocations
