// The options that say which step: `headroom step` times it, `headroom profile step` looks into it.
#pragma once
#include "cli/model_options.h"
#include "studies/step_time.h"

namespace headroom::cli {

struct HoldingAsked {  // how long what stands, and in which type
  std::string masters = "whole", updating = "after", gradients = "whole";

  bool plain() const { return masters == "whole" && updating == "after" && gradients == "whole"; }
  engine::Holding settings() const;
};
void add_holding(CLI::App&, HoldingAsked&);

struct StepAsked {
  StepTime study;
  ModelOptions model;
  std::vector<std::string> precisions{"fp32"};
  std::string keep = "everything";
  std::optional<std::uint64_t> memory;
  HoldingAsked holding;
  std::int64_t steps = 10, threads = 0;

  StepTime settings(const Common&) const;  // checked
};
void add_step(CLI::App&, StepAsked&);

}  // namespace headroom::cli
