// Which addresses NVIDIA's driver gives to cudaMalloc, call by call. The rule was found from logs of an H200 (CUDA 13.0, driver 580), which
// tests/dry/addresses_test.cpp replays. It matters because PyTorch, among blocks of one size, takes the one at the lowest address.
//
// - Requests of 2 MiB and more take whole pages of 2 MiB: from the newest reservation with room, there the smallest hole that fits, the lowest
//   of equals. Without room a new reservation is made, a multiple of 32 MiB, at the top of the highest gap with 32 MiB to spare. It is given
//   back when all of it is free.
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

class Addresses {
 public:
  using Address = std::uint64_t;
  static constexpr std::uint64_t mib = 1 << 20, page = 2 * mib, grain = 512, step = 32 * mib;
  static constexpr std::uint64_t local = 414 * mib, grown = 512 * mib;  // the context's own, at first and later
  static constexpr std::uint64_t context = 512 * mib;                   // what a new context reserves, all in all

  // As a new context leaves it: below `end` a reservation of 32 MiB whose first 8 are taken, 64 MiB of others, then 414 MiB of its
  // own with 2 MiB free after them. What programs ask for comes below.
  explicit Addresses(Address end) : top_(end - context) {
    hold(end - step, step);
    cut(areas_.back().holes, end - step, 8 * mib);
    hold(top_, 416 * mib);
    cut(areas_.back().holes, top_, local);
    taken_[top_] = local;
  }

  Address take(std::uint64_t bytes) {
    if (bytes >= page) return take_pages(up(bytes, page));
    const std::uint64_t n = up(bytes ? bytes : 1, grain);
    Address at = best(parts_, n, true);
    if (!at) {
      at = take_pages(page);
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
    take_pages(bytes);
    pages_ -= bytes;
  }

  // Early in a program that launches kernels the driver takes up to 512 MiB of its own and gives the 414 back.
  void grow_local() {
    if (std::exchange(large_, true)) return;
    take_own(grown);
    give_pages(top_);
    pages_ += local;
  }

  std::uint64_t used() const { return pages_; }  // in whole pages, without the context's

  Address reservation(Address at) const { return std::prev(spans_.upper_bound(at))->first; }

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
    pages_ += n;
    for (auto area = areas_.rbegin();; ++area) {
      if (area == areas_.rend()) {
        hold(gap(up(n, step)), up(n, step));
        area = areas_.rbegin();
      }
      if (const Address at = best(area->holes, n, false)) {
        cut(area->holes, at, n);
        taken_[at] = n;
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
      spans_.erase(area->begin);
      areas_.erase(area);
    }
    return true;
  }

  // The end of the highest gap that has 32 MiB to spare (to align in: the driver asks the system for that much more).
  Address gap(std::uint64_t n) const {
    Address end = top_;
    for (auto span = spans_.rbegin(); span != spans_.rend(); ++span) {
      const Address after = span->first + span->second;
      if (after > end) continue;
      if (end - after >= n + step) break;
      end = span->first;
    }
    return end - n;
  }

  Address top_;
  bool large_ = false;                                               // local memory has grown
  std::vector<Area> areas_;                                          // the oldest first
  std::map<Address, std::uint64_t> spans_, taken_, small_, shared_;  // bytes; parts in a shared page
  Holes parts_;                                                      // of shared pages
  std::uint64_t clock_ = 0, pages_ = 0;
};

}  // namespace headroom::dry
