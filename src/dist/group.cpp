#include "dist/group.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "dist/backends.h"
#include "dist/mpi.h"
#include "dist/quiet.h"

namespace headroom::dist {

Group::Group(const Seat& seat, Settings settings, std::optional<std::chrono::milliseconds> patience)
    : started_here_(seat.start_others || seat.inherited >= 0) {
  Coming c;
  c.rank = seat.rank, c.ranks = seat.ranks, c.address = seat.address, c.job = seat.job, c.settings = std::move(settings);
  if (patience) c.patience = *patience;
  if (seat.start_others) {
    others_ = std::make_unique<Others>(seat.ranks);
    c.connected = others_->connections();
    c.fate = [this](int rank) { return others_->fate(rank); };
  }
  const bool nowhere = seat.ranks > 1 && !seat.start_others && seat.inherited < 0 && seat.address.host.empty();
  if (nowhere) {
    const std::string why = mpi_why_not();
    check(why.empty(), Code::unsupported, "{} started ranks on several machines and does not say where they meet: {}, or use MPI ({})",
          seat.launcher, how_to_meet, why);
    c.address = address_by_mpi(seat.rank, seat.ranks);
  }
  check(seat.inherited < 0 || (fcntl(seat.inherited, F_GETFD) >= 0 && seat.rank > 0 && seat.rank < seat.ranks), Code::bad_argument,
        "HEADROOM_RANK, HEADROOM_RANKS and HEADROOM_FD are set by rank 0 for the ranks that it starts, and rank 0 did not start this one; "
        "unset them");
  if (seat.inherited >= 0) c.connected.emplace_back(seat.inherited);
  rendezvous_ = std::make_unique<Rendezvous>(std::move(c));
}

Group::~Group() { rendezvous_.reset(); }  // before the wait for the started ranks

void Group::refuse(const std::string& why) const {
  if (rendezvous_->rank() == 0) throw Error(Code::bad_argument, why);
  throw Quiet(Code::bad_argument, why);
}

int Group::device_index(int visible) {
  const int local = rendezvous_->local_rank(), here = rendezvous_->local_ranks();
  for (const auto& words : rendezvous_->collect(packed({std::to_string(visible), std::to_string(here)}), "their GPUs")) {
    const auto one = unpacked(words);
    const int theirs = std::stoi(one[0]), of = std::stoi(one[1]);
    if (theirs < of && (started_here_ || theirs != 1))
      refuse(fmt::format("{} ranks need {} GPUs on one machine, and {} there; --device cpu --ranks {} takes processes on the CPU", of, of,
                         theirs == 1 ? "1 is" : fmt::format("{} are", theirs), of));
  }
  return visible == 1 ? 0 : local;
}

void Group::check_devices(const Device& d) {
  const auto all = rendezvous_->collect(packed({host_id(), d.kind == DeviceKind::cuda ? d.bus : "", d.name}), "their devices");
  const auto first = unpacked(all[0]);
  for (std::size_t r = 0; r < all.size(); ++r) {
    const auto one = unpacked(all[r]);
    if (one[1].empty() != first[1].empty()) refuse(fmt::format("rank 0 runs on {} and rank {} on {}", first[2], r, one[2]));
    for (std::size_t q = 0; !one[1].empty() && q < r; ++q)
      if (const auto other = unpacked(all[q]); other[0] == one[0] && other[1] == one[1])
        refuse(fmt::format(
            "ranks {} and {} are both on the GPU at {} ({}); each needs its own: let each see another with CUDA_VISIBLE_DEVICES", q, r,
            one[1], one[2]));
  }
}

std::unique_ptr<Comm> Group::comm(const Device& d, std::optional<Backend> asked, Route route) {
  check_devices(d);
  const Joining joining{*rendezvous_, d, route};
  return join(joining, asked);
}

std::uint64_t Group::least(std::uint64_t mine, const char* what) {
  for (const auto& theirs : rendezvous_->collect(std::to_string(mine), what)) mine = std::min<std::uint64_t>(mine, std::stoull(theirs));
  return mine;
}
std::uint64_t Group::most(std::uint64_t mine, const char* what) {
  for (const auto& theirs : rendezvous_->collect(std::to_string(mine), what)) mine = std::max<std::uint64_t>(mine, std::stoull(theirs));
  return mine;
}

std::uint64_t Group::memory_of_each(const Device& d, std::uint64_t taken) {
  const std::uint64_t mine = d.kind == DeviceKind::cpu ? d.memory_bytes / std::uint64_t(rendezvous_->local_ranks()) : d.memory_bytes;
  return least(mine - std::min(mine, taken), "their memory");
}

void Group::leave() {
  rendezvous_->leave();
  finish_mpi();
}

bool Group::end(const std::string& why) noexcept {
  const bool heard = rendezvous_->ended().has_value();
  const bool told = rendezvous_->end(why);
  return heard ? rendezvous_->speaks() : first() || !told;
}

}  // namespace headroom::dist
