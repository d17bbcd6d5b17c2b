#include "dry/library/values.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "dry/library/memory.h"
#include "dry/library/python.h"
#include "dry/library/recorder.h"

namespace headroom::dry {

namespace {

using Address = std::uintptr_t;

struct Later {
  std::size_t bytes;
  std::function<bool(char*)> fetch;
};

struct Part : std::vector<char> {
  Part() = default;
  template <class Iterator>
  Part(Iterator first, Iterator last, Knowledge known) : std::vector<char>(first, last), how(known) {}
  Knowledge how = Knowledge::all;
};

struct Hole {
  Address begin, end;
};

struct Parts {  // pieces of known memory; they never overlap
  std::mutex mutex;
  std::map<Address, Part> bytes;
  std::map<Address, Later> later;

  // The first part in this range that is not fetched yet; later.end() without one.
  std::map<Address, Later>::iterator later_in(Address begin, std::size_t n) {
    auto at = later.upper_bound(begin);
    if (at != later.begin() && std::prev(at)->first + std::prev(at)->second.bytes > begin) return std::prev(at);
    return at != later.end() && at->first < begin + n ? at : later.end();
  }

  void forget(Address begin, std::size_t n) {
    const Hole hole = {begin, begin + n};
    forget(std::span(&hole, n ? 1 : 0));
  }

  // Holes one after another. Each part is divided once: padding leaves thousands of rows of what it filled.
  void forget(std::span<const Hole> holes) {
    if (holes.empty()) return;
    for (const Hole& h : holes)
      for (auto old = later_in(h.begin, h.end - h.begin); old != later.end(); old = later_in(h.begin, h.end - h.begin)) later.erase(old);
    auto at = bytes.upper_bound(holes.front().begin);
    if (at != bytes.begin()) --at;
    auto hole = holes.begin();
    while (at != bytes.end() && at->first < holes.back().end) {
      const Address begin = at->first, end = begin + at->second.size();
      while (hole->end <= begin) ++hole;
      if (hole->begin >= end) {
        ++at;
        continue;
      }
      const auto node = bytes.extract(at++);
      const Part& part = node.mapped();
      Address from = begin;
      for (auto h = hole; from < end; ++h) {
        const Address to = h == holes.end() ? end : std::clamp(h->begin, from, end);
        if (to > from) bytes.emplace_hint(at, from, Part(part.begin() + (from - begin), part.begin() + (to - begin), part.how));
        if (h == holes.end()) break;
        from = std::max(from, h->end);
      }
    }
  }

  // The known pieces of a range, by their distance from its begin.
  std::map<std::size_t, Part> pieces(Address begin, std::size_t n) const {
    std::map<std::size_t, Part> all;
    auto at = bytes.upper_bound(begin);
    if (at != bytes.begin()) --at;
    for (; at != bytes.end() && at->first < begin + n; ++at) {
      const Address first = std::max(begin, at->first), last = std::min(begin + n, at->first + at->second.size());
      const auto from = at->second.begin() + std::ptrdiff_t(first - at->first);
      if (first < last) all[first - begin] = {from, from + std::ptrdiff_t(last - first), at->second.how};
    }
    return all;
  }

  // Unknown bytes become `unknown`, again and again; zeros without it.
  Knowledge read(Address begin, std::size_t n, char* out, std::span<const char> unknown = {}) const {
    Knowledge how = Knowledge::all;
    if (unknown.empty())
      std::memset(out, 0, n);
    else
      for (std::size_t i = 0; i < n; ++i) out[i] = unknown[i % unknown.size()];
    std::size_t found = 0;
    auto at = bytes.upper_bound(begin);
    if (at != bytes.begin()) --at;
    for (; at != bytes.end() && at->first < begin + n; ++at) {
      const Address first = std::max(begin, at->first), last = std::min(begin + n, at->first + at->second.size());
      if (first >= last) continue;
      std::memcpy(out + (first - begin), at->second.data() + (first - at->first), last - first);
      found += last - first;
      how = std::max(how, at->second.how);
    }
    return found != n ? Knowledge::none : how;
  }
};

Parts& parts() {
  static Parts& one = *new Parts;
  return one;
}

struct Answer {
  std::vector<char> bytes;
  bool known;
};
using Answers = std::deque<Answer>;
thread_local Answers* answers = nullptr;

std::atomic<std::uint64_t> all_reads = 0, all_unknown = 0;
thread_local Reads own_reads;

thread_local std::array<char, 16> element;  // what unknown_reads_as said
thread_local std::size_t element_bytes = 0;

Address number(const void* p) { return reinterpret_cast<Address>(p); }

Knowledge find(const void* p, std::size_t bytes, void* out, std::span<const char> unknown) {
  std::unique_lock lock(parts().mutex);
  for (auto at = parts().later_in(number(p), bytes); at != parts().later.end(); at = parts().later_in(number(p), bytes)) {
    const auto part = parts().later.extract(at);
    lock.unlock();
    std::vector<char> what(part.mapped().bytes);
    if (part.mapped().fetch(what.data())) know(reinterpret_cast<void*>(part.key()), what.size(), what.data());
    lock.lock();
  }
  return parts().read(number(p), bytes, static_cast<char*>(out), unknown);
}

}  // namespace

Knowledge known(const void* p, std::size_t bytes, void* out) { return find(p, bytes, out, {}); }

void know(void* p, std::size_t bytes, const void* from, Knowledge how) {
  if (!bytes) return;
  const std::lock_guard lock(parts().mutex);
  parts().forget(number(p), bytes);
  const char* const first = static_cast<const char*>(from);
  parts().bytes[number(p)] = {first, first + bytes, how};
}

void know_later(void* p, std::size_t bytes, std::function<bool(char*)> fetch) {
  if (!bytes) return;
  const std::lock_guard lock(parts().mutex);
  parts().forget(number(p), bytes);
  parts().later[number(p)] = {bytes, std::move(fetch)};
}

void know_filled(void* p, std::size_t bytes, unsigned char value) {
  if (bytes > most_known_bytes) return forget(p, bytes);
  const std::vector<char> what(bytes, char(value));
  know(p, bytes, what.data());
}

void forget(void* p, std::size_t bytes) {
  const std::lock_guard lock(parts().mutex);
  parts().forget(number(p), bytes);
}

void forget_each(void* p, std::span<const std::int64_t> places, std::size_t element, std::size_t bytes) {
  if (!bytes) return;
  std::vector<Hole> holes;
  for (const std::int64_t at : places) holes.push_back({number(p) + Address(at) * element, number(p) + Address(at) * element + bytes});
  std::ranges::sort(holes, {}, &Hole::begin);
  const std::lock_guard lock(parts().mutex);
  parts().forget(holes);
}

bool is_object(const void* bytes, std::size_t count) {
  const auto* const b = static_cast<const unsigned char*>(bytes);
  return count >= 4 && ((b[0] == 0x80 && b[1] >= 2 && b[1] <= 5) || std::memcmp(b, "PK\x03\x04", 4) == 0);
}

bool holds_object(const void* p, std::size_t bytes) {
  char head[4];
  return bytes >= sizeof head && known(p, sizeof head, head) == Knowledge::all && is_object(head, sizeof head);
}

void copy_known(void* to, const void* from, std::size_t bytes) {
  if (bytes > most_known_bytes && !holds_object(from, bytes)) return forget(to, bytes);
  std::vector<char> what(bytes);
  const Knowledge how = known(from, bytes, what.data());
  if (how != Knowledge::none) return know(to, bytes, what.data(), how);
  const std::lock_guard lock(parts().mutex);
  auto pieces = parts().pieces(number(from), bytes);
  parts().forget(number(to), bytes);
  for (auto& [at, piece] : pieces) parts().bytes[number(to) + at] = std::move(piece);
}

void unknown_reads_as(const void* value, std::size_t bytes) {
  element_bytes = std::min(bytes, element.size());
  if (element_bytes) std::memcpy(element.data(), value, element_bytes);
}

void read_device(void* to, const void* from, std::size_t bytes, bool guess_true) {
  Knowledge how = Knowledge::none;
  if (bytes <= most_known_bytes)
    how = find(from, bytes, to, std::span(element).first(element_bytes));
  else if (holds_object(from, bytes))
    how = known(from, bytes, to);
  else
    std::memset(to, 0, bytes);
  bool is_known = how == Knowledge::all;
  // An operation reads its counts from scratch, which may look known: it was cleared. So an answer of this size comes first.
  Answers none;
  Answers& all = answers ? *answers : none;
  const auto next = std::find_if(all.begin(), all.end(), [&](const Answer& a) { return a.bytes.size() == bytes; });
  if (next != all.end()) {
    std::memcpy(to, next->bytes.data(), bytes);
    is_known = next->known;
    all.erase(next);
  } else if (how == Knowledge::none && bytes == 1 && guess_true) {
    *static_cast<char*>(to) = 1;
  }
  ++all_reads;
  ++own_reads.all;
  all_unknown += !is_known;
  own_reads.unknown += !is_known;
  int device = 0;
  on_device(from, &device);
  Recorder::get().add(Read{number(from), bytes, is_known, std::uint32_t(device), is_known ? here() : look()});
}

void answer(const void* value, std::size_t bytes, bool known) {
  if (!answers) answers = new Answers;
  const char* const first = static_cast<const char*>(value);
  answers->push_back({{first, first + bytes}, known});
}

void unanswer() {
  if (answers) answers->clear();
}

Reads reads() { return {all_reads, all_unknown}; }
Reads reads_here() { return own_reads; }

}  // namespace headroom::dry
