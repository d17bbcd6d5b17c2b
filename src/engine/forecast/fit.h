// The factors (base/efficiency.h) that fit measured steps: of the H200's that are recorded (tests/engine/fit_test.cpp), and of those that
// `headroom device --efficiencies` measures.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/efficiency.h"
#include "engine/recipe/recipe.h"

namespace headroom::engine {

struct StepMeasured {  // on one rank
  Recipe recipe;
  double ms = 0;
};

// What factors are over: what a card's units take, where its kernels were timed, else rooflines.
enum class Over : std::uint8_t { units, rooflines };
Over usual_over(const Device&);

// What fits steps of one precision best: the largest relative errors are small. Where the steps say little of a kind it stays near what it is
// over. Its `within` is 1, its link 0: neither follows from these steps.
Efficiency fitted(Precision, std::span<const StepMeasured>, const Ceilings&, const Device&, int workers, std::optional<Over> = {});

// What is expected of each step by a fit to the steps of all other models.
std::vector<double> foretold_by_others(Precision, std::span<const StepMeasured>, const Ceilings&, const Device&, int workers);

}  // namespace headroom::engine
