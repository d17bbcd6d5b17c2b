// Which addresses NVIDIA's driver gives to cudaMalloc, call by call. The rule was found from logs of an H200 (CUDA 13.0, driver 580), which
// tests/dry/addresses_test.cpp replays. It matters because PyTorch, among blocks of one size, takes the one at the lowest address.
//
// - Requests of 2 MiB and more take whole pages of 2 MiB: from the newest reservation with room, there the smallest hole that fits, the lowest
//   of equals. Without room a new reservation is made, a multiple of 32 MiB, at the top of the highest gap with 32 MiB to spare: the driver
//   asks the system for that much more, to align in. It is given back when all of it is free.
// - Smaller requests are rounded to 512 bytes and share a page: of all shared pages' holes the smallest that fits, the oldest of equals.
// - Holes merge at once.
#pragma once
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace headroom::dry {

// Where reservations come from. The driver's come from the process's own address space, among the mappings of the program's libraries and
// tensors: what the program gives back to the system on the host makes gaps that the card's reservations go into.
class AddressSpace {
 public:
  using Address = std::uint64_t;
  static constexpr std::uint64_t step = 32 << 20;

  AddressSpace() = default;
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;
  virtual ~AddressSpace() = default;
  virtual Address take(std::uint64_t bytes) = 0;  // a multiple of `step`, and so is the answer; 0: there is no room
  virtual void give(Address, std::uint64_t bytes) = 0;
};

class SpaceOfSpans : public AddressSpace {
 public:
  void give(Address at, std::uint64_t n) override {  // a part of one that was taken
    const auto span = std::prev(spans_.upper_bound(at));
    const Address begin = span->first, end = begin + span->second;
    spans_.erase(span);
    if (begin < at) spans_[begin] = at - begin;
    if (at + n < end) spans_[at + n] = end - at - n;
  }

 protected:
  std::map<Address, std::uint64_t> spans_;  // taken: their bytes
};

// An empty one below `end`.
class SpaceBelow final : public SpaceOfSpans {
 public:
  explicit SpaceBelow(Address end) : end_(end) {}

  Address take(std::uint64_t n) override {
    Address end = end_;
    for (auto span = spans_.rbegin(); span != spans_.rend() && end - (span->first + span->second) < n + step; ++span) end = span->first;
    spans_[end - n] = n;
    return end - n;
  }

 private:
  Address end_;
};

class Addresses {
 public:
  using Address = std::uint64_t;
  static constexpr std::uint64_t mib = 1 << 20, page = 2 * mib, grain = 512, step = AddressSpace::step;
  static constexpr std::uint64_t local = 414 * mib, grown = 512 * mib;  // the context's own, at first and later
  static constexpr std::uint64_t context = 512 * mib;                   // what a new context reserves, all in all

  // As a new context leaves it: at the end of its room a reservation of 32 MiB whose first 8 are taken, below it 64 MiB of others, then 414
  // MiB of its own with 2 MiB free after them.
  explicit Addresses(AddressSpace& space) : space_(space), top_(space.take(context)) {
    const Address end = top_ + context;
    hold(end - step, step);
    cut(areas_.back().holes, end - step, 8 * mib);
    hold(top_, 416 * mib);
    cut(areas_.back().holes, top_, local);
    taken_[top_] = local;
  }

  // 0: the process has no addresses left.
  Address take(std::uint64_t bytes) {
    if (bytes >= page) return take_pages(up(bytes, page));
    const std::uint64_t n = up(bytes ? bytes : 1, grain);
    Address at = best(parts_, n, true);
    if (!at) {
      at = take_pages(page);
      if (!at) return 0;
      shared_[at] = 0;
      add(parts_, at, page);
    }
    cut(parts_, at, n);
    small_[at] = n;
    ++shared_[at / page * page];
    return at;
  }

  bool give(Address at) {
    const auto part = small_.find(at);
    if (part == small_.end()) return give_pages(at);
    add(parts_, at, part->second);
    small_.erase(part);
    const Address whole = at / page * page;
    if (--shared_[whole]) return true;
    shared_.erase(whole);  // the last part is gone: the page is, too
    cut(parts_, whole, page);
    return give_pages(whole);
  }

  // For the driver itself.
  void take_own(std::uint64_t bytes) {
    if (take_pages(bytes)) pages_ -= bytes;
  }

  // Early in a program that launches kernels the driver takes up to 512 MiB of its own and gives the 414 back.
  void grow_local() {
    if (std::exchange(large_, true)) return;
    take_own(grown);
    give_pages(top_);
    pages_ += local;
  }

  std::uint64_t used() const { return pages_; }  // in whole pages, without the context's

  // Where an address's reservation begins; 0: it is in none.
  Address reservation(Address at) const {
    auto span = spans_.upper_bound(at);
    if (span == spans_.begin()) return 0;
    --span;
    return at - span->first < span->second ? span->first : 0;
  }

 private:
  struct Hole {
    std::uint64_t size, age;
  };
  using Holes = std::map<Address, Hole>;
  struct Area {  // a reservation
    Address begin;
    std::uint64_t size;
    Holes holes;
  };

  static std::uint64_t up(std::uint64_t n, std::uint64_t to) { return (n + to - 1) / to * to; }

  // The smallest hole that is large enough; of equal ones the oldest, or the lowest.
  static Address best(const Holes& holes, std::uint64_t n, bool oldest) {
    auto found = std::tuple(~std::uint64_t(0), std::uint64_t(0), Address(0));
    for (const auto& [at, h] : holes)
      if (h.size >= n) found = std::min(found, std::tuple(h.size, oldest ? h.age : at, at));
    return std::get<2>(found);
  }

  void add(Holes& holes, Address at, std::uint64_t n) {
    auto next = holes.lower_bound(at);
    if (next != holes.end() && at + n == next->first) n += next->second.size, next = holes.erase(next);
    if (next != holes.begin())
      if (const auto before = std::prev(next); before->first + before->second.size == at)
        at = before->first, n += before->second.size, holes.erase(before);
    holes[at] = {n, ++clock_};
  }

  void cut(Holes& holes, Address at, std::uint64_t n) {
    const auto hole = std::prev(holes.upper_bound(at));
    const Address begin = hole->first, end = begin + hole->second.size;
    holes.erase(hole);
    if (begin < at) holes[begin] = {at - begin, ++clock_};
    if (at + n < end) holes[at + n] = {end - at - n, ++clock_};
  }

  void hold(Address begin, std::uint64_t size) {
    areas_.push_back({begin, size, {}});
    add(areas_.back().holes, begin, size);
    spans_[begin] = size;
  }

  // Whole pages: from the newest reservation that has room, else from a new one.
  Address take_pages(std::uint64_t n) {
    for (auto area = areas_.rbegin();; ++area) {
      if (area == areas_.rend()) {
        const Address begin = space_.take(up(n, step));
        if (!begin) return 0;
        hold(begin, up(n, step));
        area = areas_.rbegin();
      }
      if (const Address at = best(area->holes, n, false)) {
        cut(area->holes, at, n);
        taken_[at] = n;
        pages_ += n;
        return at;
      }
    }
  }

  bool give_pages(Address at) {
    const auto block = taken_.find(at);
    if (block == taken_.end()) return false;
    const std::uint64_t n = block->second;
    taken_.erase(block);
    pages_ -= n;
    auto area = areas_.begin();
    while (at - area->begin >= area->size) ++area;
    add(area->holes, at, n);
    if (area->holes.begin()->second.size == area->size) {  // all of it is free: the reservation goes
      space_.give(area->begin, area->size);
      spans_.erase(area->begin);
      areas_.erase(area);
    }
    return true;
  }

  AddressSpace& space_;
  Address top_;
  bool large_ = false;                                               // local memory has grown
  std::vector<Area> areas_;                                          // the oldest first
  std::map<Address, std::uint64_t> spans_, taken_, small_, shared_;  // bytes; parts in a shared page
  Holes parts_;                                                      // parts of shared pages
  std::uint64_t clock_ = 0, pages_ = 0;
};

}  // namespace headroom::dry
