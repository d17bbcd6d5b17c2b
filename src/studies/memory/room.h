// A memory limit, and the meaning of "fits": the peak plus everything allocated beside it is at most the limit.
// A GPU adds its context, libraries and buffers of communication (gpu/architecture.h). A CPU adds nothing.
#pragma once
#include <optional>
#include <string>

#include "base/pinned_pages.h"
#include "dist/group.h"
#include "engine/forecast/keep_auto.h"
#include "gpu/architecture.h"

namespace headroom::studies {

struct Room {
  std::uint64_t memory_bytes = 0;    // the limit that was asked about
  std::uint64_t overhead_bytes = 0;  // bytes allocated beside the peak
  std::string words;                 // what the overhead consists of, and its source; empty if there is none
  std::string less_than_asked;       // why the limit is below --memory; empty where it is not
  int gpus = 1;                      // each of which has this limit
  int pinning = 0;                   // processes whose pinned memory each of them maps

  // pinned: of the host's memory, by each process.
  std::uint64_t needed_bytes(std::uint64_t peak, std::uint64_t pinned = 0) const {
    return peak + overhead_bytes + bytes_of_pinned_pages(pinned, pinning);
  }
  bool holds(std::uint64_t peak, std::uint64_t pinned = 0) const { return needed_bytes(peak, pinned) <= memory_bytes; }
  std::uint64_t for_peak() const { return memory_bytes > overhead_bytes ? memory_bytes - overhead_bytes : 0; }
};

// asked: --memory, of each GPU; empty: all that a program can have of the device, which is also the most. What is free on a card that is present is counted
// after its context was made, so the context is not taken again.
Room room_of(const Device&, std::optional<std::uint64_t> asked, int gpus = 1, RunBy = RunBy::headroom);

// The most that a run here may take, as this rank or alone: what is available, or --memory where that is less. Called by all.
// taken: of this rank's share, by its Comm.
std::uint64_t limit_of_a_run(const Device&, std::optional<std::uint64_t> asked, dist::Group*, std::uint64_t taken = 0);

// The largest peak of a step that is about to run here, as this rank or alone; asked: --memory. The same on every rank, and called by all.
std::uint64_t room_for_a_run(const Device&, std::optional<std::uint64_t> asked, dist::Group*);

// Why something with this peak does not fit, in one line.
std::string misfit(const Room&, std::uint64_t peak);

// Why a rank may not pin so many bytes of its host's memory, in one line; empty where it may. The same on every rank, and called by all.
std::string host_misfit(std::uint64_t bytes, const Device&, dist::Group*);

void tell_kept(engine::Recipe&, dist::Group&);  // gives all ranks what the first rank's blocks keep

// Where a recipe leaves open what blocks keep (auto): what the first rank finds, on all ranks, since free host memory and kept ceilings may
// differ between them. find: an engine function that does so for one rank. Called by all.
template <class Find>
void find_keep_as_first(engine::Recipe& recipe, dist::Group* group, Find&& find) {
  if (recipe.keep.found()) return;
  if (!group || group->first()) find();
  if (group) tell_kept(recipe, *group);
}

}  // namespace headroom::studies
