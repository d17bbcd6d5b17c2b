// What commands that run on several ranks share: their options, and a body that is run by each of them.
#pragma once
#include <functional>
#include <string>

#include "cli/command.h"
#include "dist/group.h"

namespace headroom::cli {

struct RanksOptions {
  std::int64_t gpus = 0, ranks = 0, rank = -1;  // 0, −1: not given
  std::string rendezvous;

  dist::RanksAsked asked() const;
};
void add_ranks(CLI::App&, RanksOptions&);                  // --gpus, --ranks, --rank, --rendezvous
void check_for_ranks(const CLI::App&, const dist::Seat&);  // --shard and --split-tokens say how several ranks share a step out

// Runs the body as one rank, or alone and without a group. The first rank speaks: on the others `common` is silent. An Error of one ends all,
// and one of them prints it; so does a rank that is killed. Settings: what must be equal, every option that was given.
int as_ranks(const dist::Seat&, const CLI::App&, Common&, const std::function<int(dist::Group*)>& body);

// The device of this rank; without a group, that of --device.
Device chosen_device(const Common&, dist::Group*);

}  // namespace headroom::cli
