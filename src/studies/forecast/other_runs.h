// Other runs of a program, in which what a dry run guessed comes out otherwise; the need is then an interval that holds all of them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "studies/forecast/forecast.h"
#include "studies/forecast/run.h"

namespace headroom::studies {

// A program as it ran, and how many more of its runs may go on at once.
struct AsItRan {
  DryRunAsked asked;
  int at_once = 1;

  DryRunAsked with(const char* variable, const std::string& value) const;
};

// The number for a run without a limit from the error on that ended a run: a program that halves its batch and still fails needs what its last batch does.
// A fraction of its own does not hold without a limit, so its errors do not come again.
std::uint64_t unlimited_from(const DryRun& ended);

// The first line of each guess from which sizes follow. Draws are others in each run, so they are said only where no other size is guessed.
std::vector<Routing> routing_of(const std::vector<ProcessStory>& processes);

// Runs it again with other outcomes of what was guessed (t.routing).
void add_routing(Told& t, const AsItRan& program, const Host& host);

// PyTorch's allocator gives memory back that a second stream used once that stream is done with it. By the clock it was done sooner or later; of a
// faster card at once, and of any card when the program has waited for it. So with what PyTorch holds for collectives until it has looked.
void add_late(Told& t, const AsItRan& program, const Host& host);

}  // namespace headroom::studies
