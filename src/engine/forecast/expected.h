// The time of a step that was not run, where steps of such a machine were measured: every op at its roofline times what ops of its kind
// took there, and a time for each op. The factors (base/efficiency.h) are fitted here too: to the recorded steps of the H200
// (tests/engine/expected_test.cpp), and to those that `headroom device --efficiencies` measures.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/efficiency.h"
#include "engine/pass/training.h"

namespace headroom::engine {

struct Expected {
  double ms = 0, low_ms = 0, high_ms = 0;
  std::string by;  // what the interval stands on, where it is more than the card's own steps in this precision
};

// What the ops of a recipe take on a device, and how far that can be trusted: a step lies between its time over `faster` and times `slower`.
struct OpTimes {
  Efficiency efficiency;
  Ceilings ceilings;  // the rooflines'
  int units = 0;      // a card's multiprocessors: products are tiles over them
  double faster = 1, slower = 1;
  std::string by;
  bool by_other_precisions = false;  // no steps in this one were measured
};
struct OpTimesOrWhy {
  std::optional<OpTimes> times;
  std::string why;
};
OpTimesOrWhy op_times(const Recipe&, const Device&);
double expected_ms(const OpCall&, const Recipe&, const OpTimes&);

// Other ranks and the host: how long their links are busy, and what the step waits for them, where its ops take what OpTimes says.
struct LinkTime {
  double ms = 0, exposed_ms = 0, host_ms = 0, host_exposed_ms = 0;
};
// ms_at_least: of the same step, with every op at its ceiling; no interval begins below it.
Expected expected_time(double ops_ms, const LinkTime&, const OpTimes&, double ms_at_least);

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
