#include "dry/replay.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <map>
#include <random>
#include <set>
#include <string_view>
#include <system_error>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "dry/addresses.h"

namespace headroom::dry {

namespace {

constexpr std::uint64_t mib = 1 << 20, grain = 512, small = mib, small_segment = 2 * mib, large_segment = 20 * mib, own_segment = 10 * mib;

// A space in which every reservation lies somewhere else, by chance.
class Scattered final : public SpaceOfSpans {
 public:
  explicit Scattered(std::uint32_t seed) : random_(seed) {}
  Address take(std::uint64_t n) override {
    constexpr std::uint64_t places = (std::uint64_t(1) << 46) / step;
    for (;;) {
      const Address at = (1 + random_() % (places - n / step)) * step;
      const auto after = spans_.lower_bound(at);
      const bool free_after = after == spans_.end() || after->first >= at + n;
      const bool free_before = after == spans_.begin() || std::prev(after)->first + std::prev(after)->second <= at;
      if (!free_after || !free_before) continue;
      spans_[at] = n;
      return at;
    }
  }

 private:
  std::mt19937_64 random_;
};

// Where segments come from: the addresses that the run had, in its order, or another layout's.
class Segments {
 public:
  Segments() = default;
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;
  virtual ~Segments() = default;
  virtual std::uint64_t take(std::uint64_t bytes) = 0;
  virtual void give(std::uint64_t at) = 0;
};

class AsTheyWere final : public Segments {
 public:
  void next(std::uint64_t at, std::uint64_t bytes) { next_.emplace_back(at, bytes); }
  bool all_used() const { return next_.empty(); }
  std::uint64_t take(std::uint64_t bytes) override {
    if (next_.size() != 1 || next_[0].second != bytes) return 0;
    const std::uint64_t at = next_[0].first;
    next_.clear();
    return at;
  }
  void give(std::uint64_t) override {}

 private:
  std::vector<std::pair<std::uint64_t, std::uint64_t>> next_;
};

class Elsewhere final : public Segments {
 public:
  explicit Elsewhere(std::uint32_t seed) : space_(seed), addresses_(space_) {}
  std::uint64_t take(std::uint64_t bytes) override { return addresses_.take(bytes); }
  void give(std::uint64_t at) override { addresses_.give(at); }

 private:
  Scattered space_;
  Addresses addresses_;
};

// Which free block of a size PyTorch takes: the one at the lowest address (up to 2.11), the one that was made first (2.12: what is cut off a block at its
// end goes on as that block, and one that is given back goes on with its neighbours), or the one in the oldest segment (2.13 to 2.15).
enum class Prefers : std::uint8_t { lowest, made_first, oldest_segment };

// The version's own first.
std::array<Prefers, 3> choices_of(std::string_view torch) {
  const auto number = [&] {
    int n = 0;
    const auto [end, failed] = std::from_chars(torch.data(), torch.data() + torch.size(), n);
    torch.remove_prefix(std::min(torch.size(), std::size_t(end - torch.data()) + 1));
    return failed == std::errc() ? n : 0;
  };
  const int major = number(), minor = number();
  const bool newest = major > 2 || (major == 2 && minor >= 13);
  if (newest) return {Prefers::oldest_segment, Prefers::made_first, Prefers::lowest};
  if (major == 2 && minor == 12) return {Prefers::made_first, Prefers::oldest_segment, Prefers::lowest};
  return {Prefers::lowest, Prefers::made_first, Prefers::oldest_segment};
}

// What of the allocator's rules is the version's and the program's.
struct Rules {
  Prefers prefers = Prefers::lowest;
  std::uint64_t divisions = 1;  // roundup_power2_divisions:N: sizes are so many equal parts between two powers of two; 1: it is not set
  AllocatorSettings set;

  // What a size is a multiple of.
  std::uint64_t part(std::uint64_t wanted) const {
    const std::size_t interval = std::clamp<std::size_t>(std::size_t(std::bit_width(wanted / mib)), 1, set.divisions.size()) - 1;
    const std::uint64_t n = says_divisions() ? set.divisions[interval] : divisions;
    return n > 1 && wanted > grain * n ? std::bit_floor(wanted) / std::bit_floor(n) : grain;
  }
  bool says_divisions() const {
    return std::ranges::any_of(set.divisions, [](std::uint32_t n) { return n != 0; });
  }

  // A block of that size is for large requests only, is never split, and serves none that is much smaller.
  bool splits(std::uint64_t size) const { return set.max_split == 0 || size < set.max_split; }
  bool serves(std::uint64_t size, std::uint64_t block) const { return splits(size) ? splits(block) : block < size + large_segment; }
};

// The rules of PyTorch's native allocator, with its usual settings but for these.
class CachingAllocator {
 public:
  CachingAllocator(Segments& segments, std::uint64_t limit, Rules rules) : segments_(segments), limit_(limit), rules_(rules) {}

  // The address; 0: there is none, as the run has it.
  std::uint64_t take(std::uint64_t wanted, std::uint32_t stream) {
    const std::uint64_t part = rules_.part(wanted), size = std::max(grain, (wanted + part - 1) / part * part);
    const bool is_small = size <= small;
    Free& free = free_[is_small];
    std::uint64_t at = 0, bytes = 0;
    ++looks_[is_small];
    if (const auto best = free.lower_bound({stream, size, 0, 0});
        best != free.end() && std::get<0>(*best) == stream && rules_.serves(size, std::get<1>(*best))) {
      std::tie(std::ignore, bytes, std::ignore, at) = *best;
      if (const auto second = std::next(best); second != free.end() && std::get<0>(*second) == stream && std::get<1>(*second) == bytes)
        ++choices;
      free.erase(best);
    } else {
      bytes = is_small ? small_segment : size < own_segment ? large_segment : (size + small_segment - 1) / small_segment * small_segment;
      if (!std::exchange(gave_, false)) collect_garbage();
      const auto is_full = [&] { return limit_ != 0 && reserved_ + bytes > limit_; };
      if (is_full() && (!give_unsplit(stream, size, is_small) || is_full())) empty_cache();
      if (is_full()) {
        ran_out = true;
        limit_ = 0;
      }
      at = segments_.take(bytes);
      if (!at) return 0;
      blocks_[at] = {bytes, stream, rules_.prefers == Prefers::lowest ? 0 : ++made_so_far_, 0, is_small, false, true};
      reserved_ += bytes;
      needs.reserved = std::max(needs.reserved, reserved_);
      step_.reserved = std::max(step_.reserved, reserved_);
    }
    const std::uint64_t rest = bytes - size;
    if (is_small ? rest >= grain : rest > small && rules_.splits(size)) {
      blocks_[at].bytes = size;
      const auto after =
          blocks_.insert_or_assign(at + size, CachedBlock{rest, stream, blocks_[at].age, looks_[is_small], is_small, false, false}).first;
      if (rules_.prefers == Prefers::made_first) blocks_[at].age = ++made_so_far_;
      free.insert(key(*after));
    }
    CachedBlock& block = blocks_[at];
    block.taken = true;
    allocated_ += block.bytes;
    needs.allocated = std::max(needs.allocated, allocated_);
    step_.allocated = std::max(step_.allocated, allocated_);
    return at;
  }

  bool unused(std::uint64_t at) {  // given back; other streams may still use it
    const auto block = blocks_.find(at);
    if (block == blocks_.end() || !block->second.taken) return false;
    allocated_ -= block->second.bytes;
    return true;
  }

  bool give(std::uint64_t at) {
    auto block = blocks_.find(at);
    if (block == blocks_.end() || !block->second.taken) return false;
    block->second.taken = false;
    block->second.free_since = looks_[block->second.is_small];
    Free& free = free_[block->second.is_small];
    if (const auto next = std::next(block); next != blocks_.end() && !next->second.taken && !next->second.begins) {
      free.erase(key(*next));
      block->second.bytes += next->second.bytes;
      blocks_.erase(next);
    }
    if (!block->second.begins)
      if (const auto before = std::prev(block); !before->second.taken) {
        free.erase(key(*before));
        before->second.bytes += block->second.bytes;
        before->second.age = block->second.age;
        before->second.free_since = block->second.free_since;
        blocks_.erase(block);
        block = before;
      }
    free.insert(key(*block));
    return true;
  }

  // A pool of its own (CUDA graphs) keeps what is free in it until the program has given the pool back: `pools` are those of which something went.
  void empty_cache(std::span<const std::uint32_t> pools = {}) {
    for (auto block = blocks_.begin(); block != blocks_.end();) {
      const auto next = std::next(block);
      const std::uint32_t stream = block->second.stream;
      const bool goes = (stream & own_pool) == 0 || std::ranges::find(pools, stream) != pools.end();
      if (goes && !block->second.taken && is_whole_segment(block)) give_to_driver(block);
      block = next;
    }
  }

  // A segment that the run gave back. Whether it is one, and free.
  bool give_segment(std::uint64_t at, std::uint64_t bytes) {
    const auto block = blocks_.find(at);
    if (block == blocks_.end() || block->second.taken || block->second.bytes != bytes || !is_whole_segment(block)) return false;
    give_to_driver(block);
    return gave_ = true;
  }

  bool collects() const { return rules_.set.collects_above != 0 && reserved_ > rules_.set.collects_above; }

  // What was needed since the last step ended.
  Needs end_step() { return std::exchange(step_, Needs{allocated_, reserved_}); }

  Needs needs;
  std::int64_t choices = 0;
  bool ran_out = false;

 private:
  struct CachedBlock {
    std::uint64_t bytes = 0;
    std::uint32_t stream = 0;
    std::uint64_t age = 0;                                 // its own or its segment's, where that counts
    std::uint64_t free_since = 0;                          // how many requests there had been when it was given back
    bool is_small = false, taken = false, begins = false;  // begins: a segment
  };
  using Free = std::set<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t, std::uint64_t>>;  // stream, bytes, age, address
  static Free::value_type key(const std::pair<const std::uint64_t, CachedBlock>& b) {
    return {b.second.stream, b.second.bytes, b.second.age, b.first};
  }

  using Block = std::map<std::uint64_t, CachedBlock>::iterator;
  bool is_whole_segment(Block block) const {
    const auto next = std::next(block);
    return block->second.begins && (next == blocks_.end() || next->second.begins);
  }
  void give_to_driver(Block block) {
    free_[block->second.is_small].erase(key(*block));
    reserved_ -= block->second.bytes;
    segments_.give(block->first);
    blocks_.erase(block);
  }

  // Where blocks of a size are not split, memory is first sought in these: the smallest that is large enough goes back, or the largest until enough has.
  // Whether enough has: PyTorch does not ask the driver again where all of them together are smaller than the request, though it may have room by then.
  bool give_unsplit(std::uint32_t stream, std::uint64_t size, bool is_small) {
    const std::uint64_t least = rules_.set.max_split, wanted = std::max(size, least);
    if (least == 0 || is_small) return false;
    const auto at = free_[0].lower_bound({stream, wanted, 0, 0});
    if (at != free_[0].end() && std::get<0>(*at) == stream) {
      give_to_driver(blocks_.find(std::get<3>(*at)));
      return true;
    }
    for (std::uint64_t gone = 0; gone < wanted;) {
      const auto after = free_[0].lower_bound({stream, wanted, 0, 0});
      if (after == free_[0].begin()) return false;
      const auto& [of, bytes, age, largest] = *std::prev(after);
      if (of != stream || bytes < least) return false;
      gone += bytes;
      give_to_driver(blocks_.find(largest));
    }
    return true;
  }

  // Above the threshold large segments without any block go back, those first that more requests than the mean have passed by, until enough has.
  void collect_garbage() {
    if (!collects()) return;
    const std::uint64_t enough = reserved_ - rules_.set.collects_above;
    const auto age = [&](Block block) { return looks_[0] - block->second.free_since; };
    std::vector<Block> whole;
    double ages = 0;
    for (const auto& large : free_[0])
      if (const Block block = blocks_.find(std::get<3>(large)); (block->second.stream & own_pool) == 0 && is_whole_segment(block)) {
        whole.push_back(block);
        ages += double(age(block));
      }
    for (std::uint64_t gone = 0; gone < enough && !whole.empty();) {
      const double mean = ages / double(whole.size());
      const auto old = std::stable_partition(whole.begin(), whole.end(), [&](Block block) { return double(age(block)) < mean; });
      if (old == whole.end()) return;
      std::for_each(old, whole.end(), [&](Block block) {
        gone += block->second.bytes;
        ages -= double(age(block));
        give_to_driver(block);
      });
      whole.erase(old, whole.end());
    }
  }

  Segments& segments_;
  std::map<std::uint64_t, CachedBlock> blocks_;
  Free free_[2];
  std::uint64_t looks_[2] = {0, 0};  // requests for large blocks and for small ones
  Needs step_;
  bool gave_ = false;  // what the run did, for the next segment
  std::uint64_t limit_, allocated_ = 0, reserved_ = 0, made_so_far_ = 0;
  Rules rules_;
};

struct Played {
  Needs needs;
  std::vector<Needs> steps;
  std::int64_t choices = 0;
  bool ran_out = false;
};

// The segment that was asked for at once after those that were given back from here on; 0: none was.
std::uint64_t segment_after(std::span<const Request> requests, std::size_t i) {
  while (i < requests.size() && requests[i].what == std::uint32_t(RequestIs::segment_free)) ++i;
  return i < requests.size() && requests[i].what == std::uint32_t(RequestIs::segment_taken) ? requests[i].bytes : 0;
}

// Whether PyTorch gave segments back because it was out of memory, which another layout may not be, and not because the program emptied its cache before
// its next request. `reserved`: before it did. What the driver takes itself is not in `limit`.
bool was_full(std::uint64_t reserved, std::uint64_t next, std::uint64_t limit) { return next != 0 && reserved + next > limit - limit / 64; }

// The segments that were given back from here on.
bool give_as_the_run(CachingAllocator& allocator, std::span<const Request> requests, std::size_t i) {
  for (; i < requests.size() && requests[i].what == std::uint32_t(RequestIs::segment_free); ++i)
    if (!allocator.give_segment(requests[i].address, requests[i].bytes)) return false;
  return true;
}

// The streams of the segments that were given back from here on.
std::vector<std::uint32_t> streams_that_gave(std::span<const Request> requests, std::size_t i) {
  std::vector<std::uint32_t> streams;
  for (; i < requests.size() && requests[i].what == std::uint32_t(RequestIs::segment_free); ++i) streams.push_back(requests[i].stream);
  return streams;
}

enum class Change : std::uint8_t { addresses, smaller, larger };

// Workspaces as a card may ask for them: in a layout all of them, or those of sizes that the seed decides; larger ones by a part of what they may grow,
// since a block that is a little too large for what was freed makes a segment as well as one that is much too large.
struct OnCard {
  std::span<const Workspace> workspaces;
  Change change = Change::addresses;
  std::uint64_t seed = 0;  // 0: all
  unsigned halvings = 0;   // of what they may grow
  std::uint64_t asks(std::size_t block, std::uint64_t bytes) {
    while (!workspaces.empty() && workspaces[0].block < block) workspaces = workspaces.subspan(1);
    if (change == Change::addresses || workspaces.empty() || workspaces[0].block != block) return bytes;
    if (seed != 0 && std::mt19937_64(bytes ^ seed << 48)() % 2 != 0) return bytes;
    const auto& [number, least, most] = workspaces[0];
    if (change == Change::smaller) return std::min(least, bytes);
    return most > bytes ? bytes + ((most - bytes) >> halvings) : bytes;
  }
};

// Plays the requests. `own`: the addresses have to come out as they were.
std::optional<Played> played(std::span<const Request> requests, std::span<const std::size_t> step_ends, Segments& segments, AsTheyWere* own,
                             std::uint64_t limit, Rules rules, OnCard card = {}) {
  CachingAllocator allocator(segments, own ? 0 : limit, rules);
  std::unordered_map<std::uint64_t, std::uint64_t> now;  // the run's address of a block, and this layout's
  std::unordered_set<std::uint64_t> not_there;           // blocks of the run that are left out here
  bool emptied = false;
  std::size_t taken = 0;
  std::uint64_t reserved = 0;  // in the run
  std::vector<Needs> steps;
  const auto end_steps = [&] {
    while (steps.size() < step_ends.size() && taken >= step_ends[steps.size()]) steps.push_back(allocator.end_step());
  };
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Request& r = requests[i];
    const auto is = static_cast<RequestIs>(r.what);
    if (is == RequestIs::segment_free && !std::exchange(emptied, true)) {
      const std::uint64_t next = segment_after(requests, i);  // where they have to, the rules do it
      const bool full = limit != 0 && was_full(reserved, next, limit);
      const bool by_itself = allocator.collects() ? next != 0 : full;
      if (!by_itself) allocator.empty_cache(streams_that_gave(requests, i));
      if (by_itself && full && own && !give_as_the_run(allocator, requests, i)) return std::nullopt;
    }
    if (is != RequestIs::segment_free) emptied = false;
    switch (is) {
      case RequestIs::taken: {
        end_steps();
        const std::uint64_t bytes = card.asks(taken++, r.bytes);
        if (bytes == 0) {
          not_there.insert(r.address);
          break;
        }
        const std::uint64_t at = allocator.take(bytes, r.stream);
        if (!at || (own && at != r.address)) return std::nullopt;
        now[r.address] = at;
        break;
      }
      case RequestIs::unused:
      case RequestIs::given: {
        if (const auto gone = not_there.find(r.address); gone != not_there.end()) {
          if (is == RequestIs::given) not_there.erase(gone);
          break;
        }
        const auto at = now.find(r.address);
        if (at == now.end()) return std::nullopt;
        if (!(is == RequestIs::unused ? allocator.unused(at->second) : allocator.give(at->second))) return std::nullopt;
        if (is == RequestIs::given) now.erase(at);
        break;
      }
      case RequestIs::segment_taken:
        reserved += r.bytes;
        if (own) own->next(r.address, r.bytes);
        break;
      case RequestIs::segment_free: reserved -= std::min(reserved, r.bytes); break;
      default: return std::nullopt;
    }
  }
  if (own && !own->all_used()) return std::nullopt;
  end_steps();
  return Played{allocator.needs, std::move(steps), allocator.choices, allocator.ran_out};
}

std::vector<std::uint64_t> bytes_taken(std::span<const Request> requests) {
  std::vector<std::uint64_t> bytes;
  for (const Request& r : requests)
    if (r.what == std::uint32_t(RequestIs::taken)) bytes.push_back(r.bytes);
  return bytes;
}

void widen(Needs& low, Needs& high, const Needs& other) {
  for (const auto member : {&Needs::allocated, &Needs::reserved}) {
    low.*member = std::min(low.*member, other.*member);
    high.*member = std::max(high.*member, other.*member);
  }
}

}  // namespace

std::optional<Spread> spread_of(std::span<const Request> requests, std::uint64_t limit, std::span<const std::size_t> step_ends,
                                std::span<const Workspace> workspaces, AllocatorSettings set) {
  constexpr std::size_t most_played = 2'000'000, most_layouts = 48, least_layouts = 12, layouts_with_more = 12;
  std::optional<Played> first;
  Rules rules;
  for (const std::uint64_t divisions : {1, 2, 4, 8, 16, 32, 64})
    for (const Prefers prefers : choices_of(set.torch)) {
      if (first) break;
      AsTheyWere own;
      rules = {prefers, divisions, set};
      first = played(requests, step_ends, own, &own, limit, rules);
    }
  if (!first) return std::nullopt;
  if (rules.prefers != Prefers::lowest) first->choices = 0;  // addresses decide nothing
  Spread spread;
  spread.run = spread.low = spread.high = first->needs;
  for (const Needs& step : first->steps) spread.steps.push_back({step, step});
  spread.choices = first->choices;
  spread.limit = limit;
  const std::vector<std::uint64_t> taken = bytes_taken(requests);
  for (const Workspace& w : workspaces) {
    if (w.block >= taken.size()) return std::nullopt;
    spread.smaller += w.least < taken[w.block];
    spread.larger += w.most > taken[w.block];
  }
  if (spread.choices == 0 && spread.smaller == 0 && spread.larger == 0) return spread;
  const std::size_t layouts = std::clamp(most_played / std::max<std::size_t>(requests.size(), 1), least_layouts, most_layouts);
  for (std::uint32_t seed = 1; seed < layouts; ++seed) {
    for (const Change change : {Change::addresses, Change::smaller, Change::larger}) {
      if (change == Change::addresses && spread.choices == 0) continue;
      if (change == Change::smaller && spread.smaller == 0) continue;
      if (change == Change::larger && (spread.larger == 0 || seed > layouts_with_more)) continue;
      Elsewhere elsewhere(seed);
      const auto other =
          played(requests, step_ends, elsewhere, nullptr, limit, rules, {workspaces, change, seed % 3 == 0 ? 0 : seed, seed % 4});
      if (!other) return std::nullopt;
      widen(spread.low, spread.high, other->needs);
      for (std::size_t i = 0; i < spread.steps.size() && i < other->steps.size(); ++i)
        widen(spread.steps[i].low, spread.steps[i].high, other->steps[i]);
      if (change != Change::addresses) continue;
      ++spread.layouts;
      spread.ran_out += other->ran_out;
    }
  }
  return spread;
}

}  // namespace headroom::dry
