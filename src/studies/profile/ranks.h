// What several ranks do in a step, each by its own clock: lanes with their collectives, and how much of them nothing else covers.
#pragma once
#include <vector>

#include "dist/group.h"
#include "instruments/profile/timeline.h"
#include "instruments/profile/trace.h"
#include "studies/profile/rows.h"

namespace headroom::studies {

RankRow rank_row(const profile::Timeline&, int rank);               // without its bytes of memory
std::vector<LaneRow> lanes_of(const profile::Timeline&, int rank);  // the last step's, in order of their start; work between two is joined

// Gathers every rank's rows, on every rank.
std::vector<RankRow> of_all_ranks(dist::Group&, const RankRow& mine);
std::vector<LaneRow> of_all_ranks(dist::Group&, const std::vector<LaneRow>& mine);

void write_lanes(profile::TraceWriter&, const std::vector<LaneRow>&, int process, const std::string& phase);  // the other ranks'

}  // namespace headroom::studies
