// The clock — how long a step of a program takes that was run dry: its record's work goes through streams, which wait for each other by events
// and for the host that issues it, and the host waits where the program does. work_seconds.h says what each piece of work takes.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dry/rates.h"
#include "dry/read.h"
#include "dry/work_seconds.h"

namespace headroom::dry {

struct PartTime {
  double s = 0;      // seconds that work of this part takes, whatever runs beside it
  double count = 0;  // launches, copies, calls
  double flops = 0, bytes = 0;
};

struct StepTime {
  double s = 0;
  std::array<PartTime, part_names.size()> parts{};
  double idle_s = 0;          // the card has nothing to do and waits for the host
  double host_s = 0;          // the host issues the work
  double least_s = 0;         // the busiest card's products at the card's most flops/s
  std::int64_t steps = 0;     // this is their mean
  std::int64_t left_out = 0;  // others, which take more than twice as long as the middle one
  double with_them_s = 0;     // the mean of both
};

// A piece of work as a step gives it to the card.
struct WorkTimed {
  Part part{};
  std::string name, shape;  // a kernel's name as the library has it, or the function that was called; sides, or a grid
  std::uint32_t device = 0, stream = 0;
  double s = 0;
};

// The mean of the steps after the first two, or of the second alone. Steps that compile, evaluate or save besides are left out. Without a time: why.
struct StepTimed {
  std::optional<StepTime> step{};
  std::string why{};
  double low_s = 0, high_s = 0;   // with a host and a card as fast, and as slow, as they were seen
  std::vector<WorkTimed> work{};  // the last step's, in the order in which the card was given it
};
inline constexpr const char* no_step_seen = "the program took no optimizer step that was seen";
StepTimed step_time(const Process&, const Rates&);

}  // namespace headroom::dry
