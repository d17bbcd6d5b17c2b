// The options that describe a step, for `headroom step` and `headroom profile step`.
#pragma once
#include "cli/model_options.h"
#include "studies/step/step_time.h"

namespace headroom::cli {

struct HoldingAsked {
  engine::Holding holding{};

  bool plain() const { return key_of(holding) == key_of(engine::Holding{}); }
  engine::Holding settings() const { return holding; }
};
inline void add_holding(CLI::App& app, HoldingAsked& a) { add_described(app, a.holding); }

}  // namespace headroom::cli
