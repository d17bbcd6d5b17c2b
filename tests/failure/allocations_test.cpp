#include "tests/failure/allocations.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

namespace {

std::atomic<long> live_pieces{0}, countdown{0};
std::atomic<std::size_t> bytes_taken{0};
std::atomic<bool> was_refused{false};

void* take(std::size_t bytes, std::size_t alignment) {
  if (countdown.load() > 0 && countdown.fetch_sub(1) == 1) {
    was_refused = true;
    throw std::bad_alloc();
  }
  bytes = bytes ? bytes : 1;
  void* p = alignment > alignof(std::max_align_t) ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                                                  : std::malloc(bytes);
  if (!p) throw std::bad_alloc();
  ++live_pieces;
  bytes_taken += bytes;
  return p;
}

void give(void* p) noexcept {
  if (!p) return;
  --live_pieces;
  std::free(p);
}

}  // namespace

void* operator new(std::size_t n) { return take(n, 0); }
void* operator new[](std::size_t n) { return take(n, 0); }
void* operator new(std::size_t n, std::align_val_t a) { return take(n, std::size_t(a)); }
void* operator new[](std::size_t n, std::align_val_t a) { return take(n, std::size_t(a)); }
void operator delete(void* p) noexcept { give(p); }
void operator delete[](void* p) noexcept { give(p); }
void operator delete(void* p, std::size_t) noexcept { give(p); }
void operator delete[](void* p, std::size_t) noexcept { give(p); }
void operator delete(void* p, std::align_val_t) noexcept { give(p); }
void operator delete[](void* p, std::align_val_t) noexcept { give(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { give(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { give(p); }

namespace headroom::allocations {

long live() { return live_pieces; }
std::size_t taken_bytes() { return bytes_taken; }
void refuse(long nth) { was_refused = false, countdown = nth; }
bool refused() { return was_refused; }

namespace {

TEST(Allocations, ARefusalIsSeenOnceAndCounted) {
  const long before = live();
  refuse(2);
  auto first = std::make_unique<int>(1);
  EXPECT_THROW(std::make_unique<int>(2), std::bad_alloc);
  auto third = std::make_unique<int>(3);
  refuse(0);
  EXPECT_EQ(live(), before + 2);
  first.reset(), third.reset();
  EXPECT_EQ(live(), before);
}

TEST(Allocations, ALeakIsSeen) {
  const long before = live();
  int* leaked = new int(1);
  EXPECT_EQ(live(), before + 1);
  delete leaked;
}

TEST(Allocations, EveryPassageFailsOnce) {
  long runs = 0;
  fail_each(
      Source::operator_new,
      [&] {
        ++runs;
        const auto a = std::make_unique<int>(1), b = std::make_unique<int>(2), c = std::make_unique<int>(3);
        return Outcome::done;
      },
      [] {});
  EXPECT_EQ(runs, 4);
}

}  // namespace
}  // namespace headroom::allocations
