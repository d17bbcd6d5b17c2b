#include "dist/shared.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <thread>

#include "base/error.h"
#include "dist/segment.h"

namespace headroom::dist {

namespace {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free);

constexpr auto soon = std::chrono::microseconds(60);

struct CallOfRank {  // what a rank shows of the call that it is in
  std::uint64_t call, bytes, root;
  char words[104];  // the bytes of a small gather: they need no window, and ranks meet once
};

struct Front {                                  // at the beginning of the segment; zero when it is made
  alignas(64) std::atomic<std::uint32_t> turn;  // how often all ranks have met
  alignas(64) std::atomic<std::uint32_t> arrived;
};

long futex(std::atomic<std::uint32_t>& word, int what, std::uint32_t value, const timespec* limit) {
  return ::syscall(SYS_futex, &word, what, value, limit, nullptr, 0);
}

class SharedComm final : public Comm {
 public:
  SharedComm(Rendezvous& r, std::size_t window)
      : Comm(r.rank(), r.ranks()), rendezvous_(r), half_(window / 2), segment_(r, front_bytes() + window * std::size_t(ranks())) {}

  Backend backend() const override { return Backend::shared; }
  std::string route(Call) const override { return "copies"; }
  void check_alive() override { rendezvous_.check_alive(); }
  void end(const std::string& why) noexcept override { rendezvous_.end(why); }

 protected:
  void do_exchange(const Tensor& mine, const Tensor& theirs, void*, Own) override {
    begin(Call::exchange, mine.bytes(), 0);
    const auto n = std::size_t(ranks());
    const std::size_t part = mine.bytes() / n, piece = half_ / n;
    for (std::size_t at = 0; at < part; at += piece) {
      const std::size_t now = std::min(piece, part - at);
      for (std::size_t j = 0; j < n; ++j) std::memcpy(window(rank()) + j * piece, mine.as<char>() + j * part + at, now);
      meet(Call::exchange);
      for (std::size_t i = 0; i < n; ++i) std::memcpy(theirs.as<char>() + i * part + at, window(int(i)) + std::size_t(rank()) * piece, now);
      half_in_use_ ^= 1;
    }
  }

  void do_gather(const Tensor& part, const Tensor& whole, void*) override {
    if (part.bytes() > 0 && part.bytes() <= sizeof(CallOfRank::words)) {
      begin(Call::gather, part.bytes(), 0, part.as<char>());
      for (int i = 0; i < ranks(); ++i) std::memcpy(whole.as<char>() + std::size_t(i) * part.bytes(), place(i).words, part.bytes());
      return;
    }
    begin(Call::gather, part.bytes(), 0);
    for (std::size_t at = 0; at < part.bytes(); at += half_) {
      const std::size_t now = std::min(half_, part.bytes() - at);
      std::memcpy(window(rank()), part.as<char>() + at, now);
      meet(Call::gather);
      for (int i = 0; i < ranks(); ++i) {
        char* to = whole.as<char>() + std::size_t(i) * part.bytes() + at;
        if (to != part.as<char>() + at) std::memcpy(to, window(i), now);
      }
      half_in_use_ ^= 1;
    }
  }

  void do_broadcast(const Tensor& whole, int root, void*) override {
    begin(Call::broadcast, whole.bytes(), root);
    for (std::size_t at = 0; at < whole.bytes(); at += half_) {
      const std::size_t now = std::min(half_, whole.bytes() - at);
      if (rank() == root) std::memcpy(window(root), whole.as<char>() + at, now);
      meet(Call::broadcast);
      if (rank() != root) std::memcpy(whole.as<char>() + at, window(root), now);
      half_in_use_ ^= 1;
    }
  }

  void do_barrier(void*) override { begin(Call::barrier, 0, 0); }

 private:
  std::size_t front_bytes() const { return (sizeof(Front) + 2 * sizeof(CallOfRank) * std::size_t(ranks()) + 4095) / 4096 * 4096; }
  Front& front() const { return *reinterpret_cast<Front*>(segment_.at(0)); }
  CallOfRank& place(int rank) const {  // two are used in turn: a rank that is a call behind still reads the one before
    return reinterpret_cast<CallOfRank*>(segment_.at(sizeof(Front)))[std::size_t(rank) * 2 + calls_ % 2];
  }
  char* window(int rank) const { return segment_.at(front_bytes() + (std::size_t(rank) * 2 + half_in_use_) * half_); }

  void begin(Call call, std::size_t bytes, int root, const char* words = nullptr) {
    ++calls_;
    CallOfRank& mine = place(rank());
    mine.call = std::uint64_t(call), mine.bytes = bytes, mine.root = std::uint64_t(root);
    if (words) std::memcpy(mine.words, words, bytes);
    meet(call);
    const CallOfRank& first = place(0);
    for (int i = 1; i < ranks(); ++i) {  // every rank sees the same first difference
      const CallOfRank& other = place(i);
      check(other.call == first.call, Code::bad_argument, "rank 0 calls {}, rank {} calls {}", names_of<Call>.of(Call(first.call)), i,
            names_of<Call>.of(Call(other.call)));
      check(other.bytes == first.bytes, Code::bad_argument, "{}: rank 0 brings {} bytes, rank {} brings {}", names_of<Call>.of(call),
            first.bytes, i, other.bytes);
      check(other.root == first.root, Code::bad_argument, "{}: rank 0 names rank {} as the root, rank {} names {}", names_of<Call>.of(call),
            first.root, i, other.root);
    }
  }

  // No rank continues before all are here. What was written before is seen after: arriving releases, the last one's turn is acquired.
  void meet(Call call) {
    rendezvous_.check_alive(names_of<Call>.of(call).data());  // a rank that waited here in vain counts as come
    Front& f = front();
    const std::uint32_t turn = f.turn.load(std::memory_order_acquire);
    if (f.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == std::uint32_t(ranks())) {
      f.arrived.store(0, std::memory_order_relaxed);
      f.turn.store(turn + 1, std::memory_order_release);
      futex(f.turn, FUTEX_WAKE, ~0u >> 1, nullptr);
      return;
    }
    for (int spin = 0; spin < 200; ++spin)
      if (f.turn.load(std::memory_order_acquire) != turn) return;
    const auto name = names_of<Call>.of(call);
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < soon) {  // to be woken takes as long
      std::this_thread::yield();
      if (f.turn.load(std::memory_order_acquire) != turn) return;
    }
    const timespec slice{0, 20'000'000};
    while (f.turn.load(std::memory_order_acquire) == turn) {  // a rank that dies is heard of by the rendezvous
      futex(f.turn, FUTEX_WAIT, turn, &slice);
      if (f.turn.load(std::memory_order_acquire) != turn) return;
      rendezvous_.check_alive(name.data());
      check(std::chrono::steady_clock::now() - start < rendezvous_.patience(), Code::io, "{}: rank {} waited {:g} s for the others", name,
            rank(), std::chrono::duration<double>(rendezvous_.patience()).count());
    }
  }

  Rendezvous& rendezvous_;
  std::size_t half_;
  unsigned half_in_use_ = 0;
  std::uint64_t calls_ = 0;
  Segment segment_;
};

}  // namespace

std::unique_ptr<Comm> make_shared_comm(Rendezvous& r, std::size_t window) { return std::make_unique<SharedComm>(r, window); }

}  // namespace headroom::dist
