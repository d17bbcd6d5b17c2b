// The time of a step that was not run, where steps of such a machine were measured: every op at its roofline times what ops of its kind
// took there, and a time for each op. The factors (base/efficiency.h) are fitted here too: to the recorded steps of the H200
// (tests/engine/expected_test.cpp), and to those that `headroom device --efficiencies` measures.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "base/efficiency.h"
#include "engine/training.h"

namespace headroom::engine {

struct Expected {
  double ms = 0, low_ms = 0, high_ms = 0;  // every measured step lay between
};

struct LinkTime {
  double ms = 0, exposed_ms = 0;  // that the link is busy, and that the step waits for it
};

// Nothing for a machine, a precision, a kind of attention or a number of ranks of which no steps were measured.
std::optional<Expected> expected_time(const Recipe&, const Walk&, const LinkTime&, const Device&);

struct StepMeasured {  // on one rank
  Recipe recipe;
  double ms = 0;
};

// What fits steps of one precision best: the largest relative errors are small. Where the steps say little of a kind it stays near its
// roofline. Its `within` is 1, its link 0: neither follows from these steps.
Efficiency fitted(Precision, std::span<const StepMeasured>, const Ceilings&, const Device&, int workers);

// Of each step, what is expected of it by a fit to the steps of all other models.
std::vector<double> foretold_by_others(Precision, std::span<const StepMeasured>, const Ceilings&, const Device&, int workers);

}  // namespace headroom::engine
