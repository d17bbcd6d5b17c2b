// One dry run of a program: started with the library that stands in for CUDA, watched while it runs, read when it has ended.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dry/launch.h"
#include "studies/forecast/account.h"
#include "studies/launch.h"

namespace headroom::studies {

struct DryRunAsked {
  std::vector<std::string> program;
  dry::Dry dry;
  std::int64_t steps = 0;                                                  // 0: until the peaks of two steps agree
  std::optional<dry::Rates> rates{};                                       // the card's; without them steps have no time
  std::vector<std::string> settings;                                       // NAME=value, of --try
  std::function<void(std::string_view)> output = [](std::string_view) {};  // the program's own, as it comes
  std::function<void(std::int64_t steps, std::uint64_t live_bytes)> progress = [](std::int64_t, std::uint64_t) {};
};

struct DryRun {
  Ended ended;
  bool enough = false;  // ended by us, or by the observer, because the steps that were asked for are done
  std::string tail;     // the end of what the program wrote
  std::vector<ProcessStory> processes;
  std::uint64_t host_bytes = 0;    // memory of this machine that all its processes took together, or a little more
  std::uint64_t record_bytes = 0;  // room that its record took where temporary files go

  bool any_bytes() const;                   // a card was used
  bool says(std::string_view words) const;  // the tail has them, in whatever case
  bool shows_exception() const;             // the tail has the end of a traceback
  std::string last_line() const;            // the tail's: an exception's line, else the last that is not empty

  bool ended_well() const;
  bool ran_out() const;  // PyTorch's error ended it
  std::optional<RanOut> where_it_ran_out() const;
  std::string how_it_ended() const;
  std::uint64_t most_reserved() const;
  std::int64_t steps() const;
};

std::string find_dry_library();  // an Error says where it should be
DryRun run_dry(const DryRunAsked&);

// What would let a program go on that failed where `cards` GPUs were shown to it; empty: not known.
std::string advice_on(const DryRun&, int cards);

// The word of a command by which its user knows it: "train.py" of "python3 -u train.py --batch 8", a module's name, else the first word.
std::string name_of(const std::vector<std::string>& program);

// The Error of a program that ended without a byte on a card, with the reason that its run shows.
[[noreturn]] void refuse_without_bytes(const DryRun&, const std::vector<std::string>& program, int cards);

}  // namespace headroom::studies
