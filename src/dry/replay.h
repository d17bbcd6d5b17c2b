// What PyTorch's caching allocator does with a program's requests when its segments lie at other addresses. Of free blocks of one size it takes
// the one at the lowest address, and which of them that is, is decided by where the driver put their segments, which is unknown without the
// card, and a card does not repeat it. So the requests of a run are played through the allocator's rules again, first at the run's own
// addresses, where every block has to come out where it was, then at others. What they need differs by what addresses alone decide.
// Newer versions of PyTorch (from 2.12 on) choose by age instead: where that gives the run's own addresses, nothing differs.
// Blocks that a card may not ask for (workspaces of products that it computes as they are) are left out in every other layout, all of them or
// those of some sizes: a card decides by shape. Workspaces that a card may ask for larger are so in a few layouts, by 2 to 16 MiB in turns, because cards were
// seen to take 1.5 to 16.8 MB more: a little larger they no longer fit what was freed.
// Sizes may be rounded up by roundup_power2_divisions: newer versions of PyTorch say by what; else the N with which blocks come out where they were is
// the run's.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dry/record.h"

namespace headroom::dry {

struct Needs {
  std::uint64_t allocated = 0, reserved = 0;  // peaks
};

struct StepSpread {
  Needs low, high;  // the least and most of a step over all layouts
};

// A block, by its number among those that were taken, from 0, of which a card may ask for other bytes: from `least` (0: none) to `most`.
struct Workspace {
  std::size_t block = 0;
  std::uint64_t least = 0, most = 0;
};

// What a program sets of PyTorch's allocator, in bytes; 0: it is not set.
struct AllocatorSettings {
  std::uint64_t max_split = 0;       // max_split_size_mb
  std::uint64_t collects_above = 0;  // garbage_collection_threshold, of the fraction of the card that the program lets PyTorch have
  // roundup_power2_divisions: into how many parts PyTorch divides what is from 0, 2, 4, … MiB on, and up to twice as much. All 0: not set, or not known.
  std::array<std::uint32_t, 16> divisions = {};
  // PyTorch's version, such as 2.14.1+cu130; "": not known. Its rule of which block is taken is tried first, since a short run's addresses may come out by
  // another version's, too.
  std::string_view torch = {};
};

struct Spread {
  Needs run, low, high;           // the run's own; the least and most over all layouts, with the run's
  std::vector<StepSpread> steps;  // one for each end that was told
  std::int64_t layouts = 1;       // layouts that were tried; 1: there was never a choice between free blocks of one size
  std::int64_t choices = 0;       // requests for which there were
  std::uint64_t limit = 0;        // the given limit
  std::int64_t smaller = 0;       // workspaces of which a card may ask for less, or none
  std::int64_t larger = 0;        // and of which it may ask for more
  std::int64_t ran_out = 0;       // layouts of these in which the limit was too small, even with an emptied cache; they went on without it
};

// Nothing where the rules do not give the run's own addresses: another allocator, settings that these rules do not know, requests that are missing.
// `limit`: of what is reserved, on the card that the run was for; 0: none. `step_ends`: how many blocks had been taken by each step's end.
// `workspaces`: ascending.
std::optional<Spread> spread_of(std::span<const Request> requests, std::uint64_t limit = 0, std::span<const std::size_t> step_ends = {},
                                std::span<const Workspace> workspaces = {}, AllocatorSettings set = {});

}  // namespace headroom::dry
