// The time of a step that was not run, where steps of such a card were measured: every op at its roofline times what ops of its kind took
// there, and a time for each launch. Fitted to recorded steps; tests/engine/expected_test.cpp holds it to them and to others.
#pragma once
#include <optional>

#include "engine/training.h"

namespace headroom::engine {

struct Expected {
  double ms = 0, low_ms = 0, high_ms = 0;  // every recorded step lay between
};

struct LinkTime {
  double ms = 0, exposed_ms = 0;  // that the link is busy, and that the step waits for it
};

// Nothing for a card, a precision, a kind of attention or a number of ranks of which no steps are on record.
std::optional<Expected> expected_time(const Recipe&, const Walk&, const LinkTime&, const Device&);

}  // namespace headroom::engine
