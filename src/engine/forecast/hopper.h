// What ops take on the units of an H100 or H200 at their full clock, and how far the card's power limit holds that clock back. Both cards have the same
// units: kernels that compute take equally long on both, others as long as their memory. Fitted to the kernels of 75 steps on each (bench/lab/kernel_times.md).
#pragma once
#include "base/device.h"
#include "engine/recipe/recipe.h"
#include "ops/op.h"

namespace headroom::engine::hopper {

bool has_units_of(const Device&);      // those that were timed
bool has_slower_units(const Device&);  // by measured ceilings: an H20's, or a card whose clock is held down

struct Taken {
  double ms = 0;
  double computes_ms = 0;  // the part that takes longer at a lower clock
  double joules = 0;       // beside what the card takes idle
};
Taken taken(const OpCall&, const Recipe&, double copy_bytes_per_s, int units);  // without op.times

// How much longer what computes takes in a step that needs so much: 1 where the card stays below its limit.
double longer_at_its_clock(double joules, double ms);

}  // namespace headroom::engine::hopper
