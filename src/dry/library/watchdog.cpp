#include "dry/library/watchdog.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <mutex>
#include <new>
#include <vector>

#include "dry/library/order.h"
#include "dry/library/pace.h"

namespace headroom::dry {

namespace {

constexpr std::uint64_t ms = 1'000'000;

// Early and late bound what a card's machine can do: one that looks after nearly every step, and one whose host is twice as fast.
std::uint64_t period_ns() {
  switch (when_asked()) {
    case When::at_once: return 10 * ms;
    case When::late: return 200 * ms;
    default: return 100 * ms;
  }
}

// On a card the 100 ms begin anywhere: the look after a sum comes 50 ms later in the mean, so it is not let to come sooner. A late one bounds that: it comes
// once a whole period has gone by. Where a backward pass has begun before, DDP has made its buckets anew, and the look comes.
std::uint64_t holds_ns() {
  switch (when_asked()) {
    case When::at_once: return 0;
    case When::late: return period_ns();
    default: return period_ns() / 2;
  }
}

// A program that stands still for so long waits for the watchdog, or does what is not counted, which takes longer than 100 ms on a card's machine too.
constexpr auto still = std::chrono::seconds(5);
// The program goes on without a watchdog that has not come back from its look: it may wait for a lock.
constexpr auto comes_back = std::chrono::seconds(2);

struct Watchdog {
  pthread_cond_t* waits_at = nullptr;  // null: it looks
  bool may_look = false;
  bool by_pace = false;     // the program waits for its look: what it is told follows the pace
  std::uint64_t asked = 0;  // in this look
};

struct Watchdogs {
  std::mutex mutex;
  std::vector<Watchdog*> all;  // threads that wait or look
  std::condition_variable came_back;
  std::atomic<std::uint64_t> due_ns = period_ns();  // when they look next, by the pace
  std::atomic<bool> have_work = false;              // a collective since they looked, or one that was not done then
  std::atomic<bool> have_large_sum = false;
  std::atomic<bool> next_sum_holds = true;        // the next large sum is the first since they looked, or of its backward pass
  std::atomic<std::uint64_t> holds_until_ns = 0;  // such a sum is held so long

  bool due(std::uint64_t now) const { return now >= due_ns && now >= holds_until_ns; }

  Watchdogs();
};
Watchdogs& watchdogs() {
  static Watchdogs& one = *new Watchdogs;
  return one;
}

Watchdogs::Watchdogs() {
  pthread_atfork(nullptr, nullptr, [] {  // a fork has none of its parent's, and one of them may have held the lock
    Watchdogs& w = watchdogs();
    new (&w.mutex) std::mutex;
    new (&w.came_back) std::condition_variable;
    w.all.clear();
  });
}

// The calling thread's, if it is one. Threads are named before they first wait.
thread_local __attribute__((tls_model("initial-exec"))) signed char is_one = -1;
thread_local __attribute__((tls_model("initial-exec"))) Watchdog* mine = nullptr;

bool is_named() {
  char name[16] = "";
  prctl(PR_GET_NAME, name);
  return std::strcmp(name, "pt_nccl_watchdg") == 0;
}

timespec later(clockid_t clock, long by_ns) {
  timespec at{};
  clock_gettime(clock, &at);
  at.tv_nsec += by_ns;
  at.tv_sec += at.tv_nsec / 1'000'000'000;
  at.tv_nsec %= 1'000'000'000;
  return at;
}

// It waits until it may look, or is woken because its process group ends. `wait(until)` is the wait that it asked for, until then.
template <class Wait>
int wait_to_look(pthread_cond_t* cond, clockid_t clock, timespec until, Wait&& wait) {
  Watchdogs& all = watchdogs();
  {
    const std::lock_guard lock(all.mutex);
    if (!mine) {
      mine = new Watchdog;
      all.all.push_back(mine);
    }
    mine->waits_at = cond;
    mine->by_pace = false;
    mine->asked = 0;
    all.came_back.notify_all();
  }
  std::uint64_t at = paced_ns();
  auto since = std::chrono::steady_clock::now();
  const auto go = [&](bool by_pace) {
    mine->waits_at = nullptr;
    mine->may_look = false;
    mine->by_pace = by_pace;
  };
  for (;;) {
    const int rc = wait(later(clock, 20 * ms));
    std::unique_lock lock(all.mutex);
    if (mine->may_look) {
      go(true);
      lock.unlock();
      until.tv_nsec += 2 * ms;  // before its time is up it would wait again
      until.tv_sec += until.tv_nsec / 1'000'000'000;
      until.tv_nsec %= 1'000'000'000;
      while (wait(until) == 0) {
        timespec now{};
        clock_gettime(clock, &now);
        if (now.tv_sec > until.tv_sec || (now.tv_sec == until.tv_sec && now.tv_nsec > until.tv_nsec)) break;
      }
      return ETIMEDOUT;
    }
    const auto now = std::chrono::steady_clock::now();
    if (paced_ns() != at) {
      at = paced_ns();
      since = now;
    }
    if (rc != ETIMEDOUT || now - since > still) {
      go(false);
      return rc;
    }
  }
}

}  // namespace

bool is_watchdog() { return is_one == 1; }

bool done_for_watchdog(const Event& event) {
  constexpr std::uint64_t on_and_on = 100'000;  // it asks so where its process group ends and it waits for the last collective
  if (!mine || !mine->by_pace || event.paced_ns <= paced_ns() || ++mine->asked > on_and_on) return true;
  watchdogs().have_work = true;
  return false;
}

void collective_given(bool is_large_sum) {
  Watchdogs& w = watchdogs();
  w.have_work = true;
  if (!is_large_sum) return;
  w.have_large_sum = true;
  if (w.next_sum_holds.exchange(false)) w.holds_until_ns = paced_ns() + holds_ns();
}

void backward_begins() {
  watchdogs().holds_until_ns = 0;
  watchdogs().next_sum_holds = true;
}

void watchdog_gives() {
  if (is_watchdog()) say_speed_decides();
}

void let_watchdogs_look() {
  Watchdogs& all = watchdogs();
  const std::uint64_t now = paced_ns();
  if (!all.due(now) || is_watchdog()) return;
  static auto* const has_python = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  if (all.have_work && has_python && has_python()) return;  // a tensor's end may need it: at a later call
  std::unique_lock lock(all.mutex);
  if (!all.due(now)) return;
  all.due_ns = (now / period_ns() + 1) * period_ns();
  all.next_sum_holds = true;
  if (!all.have_work.exchange(false)) return;
  if (all.have_large_sum.exchange(false)) say_speed_decides();
  std::vector<Watchdog*> look;
  for (Watchdog* w : all.all) {
    if (!w->waits_at) continue;
    w->may_look = true;
    pthread_cond_signal(w->waits_at);
    look.push_back(w);
  }
  all.came_back.wait_for(lock, comes_back,
                         [&] { return std::ranges::all_of(look, [](const Watchdog* w) { return w->waits_at && !w->may_look; }); });
}

}  // namespace headroom::dry

namespace {

// glibc has two versions of these; PyTorch's libraries ask for the newer.
void* of_libc(const char* name) {
  for (const char* version : {"GLIBC_2.3.2", "GLIBC_2.17"})
    if (void* const found = dlvsym(RTLD_NEXT, name, version)) return found;
  return dlsym(RTLD_NEXT, name);
}

bool is_one_that_waits() {
  using namespace headroom::dry;
  if (is_one < 0) is_one = is_named();
  return is_one == 1;
}

}  // namespace

extern "C" {
int pthread_cond_timedwait(pthread_cond_t* cond, pthread_mutex_t* mutex, const timespec* until) {
  static auto* const real = reinterpret_cast<decltype(pthread_cond_timedwait)*>(of_libc("pthread_cond_timedwait"));
  if (!is_one_that_waits()) return real(cond, mutex, until);
  return headroom::dry::wait_to_look(cond, CLOCK_REALTIME, *until, [&](const timespec& at) { return real(cond, mutex, &at); });
}

int pthread_cond_clockwait(pthread_cond_t* cond, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  static auto* const real =
      reinterpret_cast<int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)>(of_libc("pthread_cond_clockwait"));
  if (!is_one_that_waits()) return real(cond, mutex, clock, until);
  return headroom::dry::wait_to_look(cond, clock, *until, [&](const timespec& at) { return real(cond, mutex, clock, &at); });
}
}
