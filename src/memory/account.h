// An account of bytes: every component with formula and phase, and what was allocated at the peak. Filled from a dry run.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/shape_text.h"
#include "base/tensor.h"
#include "memory/ledger.h"

namespace headroom {

struct Component {
  std::string name, shape, dtype;
  std::uint64_t bytes = 0;  // its elements' bytes
  std::uint64_t taken = 0;  // with the allocator's rounding
  std::string formula;      // in symbols and in numbers; in numbers alone where no size has a name
  std::string phase;
  bool at_peak = false;
  double share = 0;  // share of the peak; 0 if it is not allocated then
  int count = 1;     // equal ones of different blocks, in bytes, taken and share counted together
};

struct Moment {  // an allocation, or its end
  std::string what;
  std::uint64_t live = 0;        // after it
  Phase phase = Phase::forward;  // phase of what was allocated or freed
  std::int64_t change = 0;
};

struct Account {
  std::uint64_t saved_bytes = 0;            // what the forward pass left for the backward pass
  std::uint64_t before_backward_bytes = 0;  // everything held when backward starts, inputs included
  std::uint64_t forward_peak_bytes = 0, backward_peak_bytes = 0;
  std::uint64_t peak_bytes = 0;
  std::vector<Component> components;  // in the order they came
  std::vector<Moment> timeline;
  std::size_t peak_moment = 0;                       // index into timeline
  std::array<std::int64_t, phase_count> at_start{};  // live before the first moment
};

// A size with a name: {"B", 19, 8}. A formula names a tensor's dimensions by comparing the tensor with the one that the same line of
// code made in a probe: a run of the same problem whose sizes are all different, so that no two names can be mistaken. The name must
// give the tensor's own size too: what has a limit (rows of partial sums) may be below it in the probe and at it in the problem.
struct Symbol {
  std::string name;
  std::int64_t probe, value;
};
std::string formula_of(const Shape& probe, const Shape& shape, std::size_t element_bytes, std::span<const Symbol>);
std::string formula_of_several(std::size_t count, const std::string& of_one);  // for equal tensors: "2 × B·N·4 = 2 × 8·64·4"

// Components that differ only in their block ("block 3 q", "block 4 q") become one.
std::vector<Component> blocks_together(const std::vector<Component>&);

// The timeline in at most `most` moments, each the highest of its stretch; the peak is always among them.
std::vector<std::size_t> moments_worth_showing(const Account&, std::size_t most = 32);

// log(bytes) against log(len), least squares; 0 with fewer than two points.
double growth_exponent(std::span<const std::pair<double, double>> len_and_bytes);

// The largest n in [0, most] for which fits(n), by bisection; fits must never turn true again once false.
template <class Fits>
std::int64_t largest(std::int64_t most, Fits fits) {
  std::int64_t yes = 0, no = most + 1;
  for (std::int64_t step = 1; yes + step < no; step *= 2) {  // reach out first: the answer is usually far below `most`
    if (!fits(yes + step))
      no = yes + step;
    else
      yes += step;
  }
  while (no - yes > 1) {
    const std::int64_t middle = yes + (no - yes) / 2;
    (fits(middle) ? yes : no) = middle;
  }
  return yes;
}

}  // namespace headroom
