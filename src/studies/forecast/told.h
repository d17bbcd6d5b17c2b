// What is known of one program after its runs, and what follows from that.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "studies/forecast/account.h"
#include "studies/forecast/rows.h"
#include "studies/forecast/time.h"
#include "studies/memory/room.h"

namespace headroom::studies {

// The need over several runs of one program, which differ in what only a card knows.
struct Runs {
  std::uint64_t least_bytes = 0, low_bytes = 0;
  std::optional<std::uint64_t> high_bytes{};
  std::uint64_t allocated_low_bytes = 0, allocated_high_bytes = 0;
  bool open = false;  // one that would bound the need failed, or was not made
};

// One of them, beside the first.
struct OtherRun {
  std::string how;       // "with no element of such masks true"
  std::string failed{};  // how it ended, where that was not well: then it is left out
  bool bounds = true;    // else its failure leaves no upper end
};

// What is known of one program, run dry or for real.
struct Told {
  ForecastRow row;
  std::vector<ForecastRankRow> ranks;    // the one that needs most first
  std::vector<ProgramAccount> accounts;  // the same order
  std::vector<ProcessStory> processes;   // processes that used a card
  ForecastTime time;                     // the slowest rank's
  std::optional<RanOut> ran_out{};       // on this card
  bool went_on = false;                  // it ran out of memory, caught that, and ended well
  bool at_least = false;                 // it ran out with unlimited memory too, by a limit of its own
  bool stopped = false;                  // Ctrl-C stopped it
  std::string not_run;                   // in a run that came after its first: "the run with unlimited memory …"; that one's answer stays
  std::string short_by;                  // it ended by itself before a second step, and these lines read values that only a card knows
  std::string other_float;               // so it ran again with this number for an unknown float
  bool tries = false;                    // what --try runs follows
  std::string waits;                     // a loop waits for a value to change: the observer's sentence
  std::string ended;                     // how it ended, where that was not well: "exit code 1: ValueError: …"
  std::string advice;                    // what would let it go on; empty: not known
  int started = 1;                       // processes that the command tells a launcher to start on each host
  Device device;
  Room room;
  std::vector<Routing> routing;             // guesses from which sizes follow
  std::vector<OtherRun> guess_runs;         // with others of them
  std::vector<OtherRun> late_runs;          // in which memory that a second stream used came back at once, or late
  std::optional<Runs> runs{};               // with other experts, or of memory that comes back early or late
  std::optional<ForecastRow> expandable{};  // the need with expandable segments, if that may decide

  // Notes that Ctrl-C stopped `what`, if it did.
  bool stop(bool asked, const std::string& what) {
    if (asked && !stopped) not_run = what;
    return stopped |= asked;
  }
};

// What is known from stories, whatever wrote them: fills the row, the ranks and the accounts. The device and the room are there already.
void fill(Told&, const std::vector<ProcessStory>&);

// What its runs have beside their tensors, without what a dry run counts: libraries. Of a real run they are as in a training step.
Overhead overhead_of(const Told&, int ranks);

// The process that the forecast itself ended after enough steps; null: it ended none.
const ProcessStory* ended_by_forecast(const Told&);

// The smallest fraction of a card that the program lets PyTorch reserve.
std::optional<Fraction> fraction_of(const Told&);

// The least that it may need: the bytes beside the tensors as they are in needed_bytes.
std::uint64_t least_of(const Told&);
// It ran out at its own limit, though the card has more.
bool own_limit_ended_it(const Told&);
// Some of what it may need is more than there is, and some is not.
bool may_fit(const Told&);

}  // namespace headroom::studies
