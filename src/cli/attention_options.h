// The options that say which attention: `headroom attention` sweeps it, `headroom profile attention` looks into it.
#pragma once
#include "cli/options.h"
#include "studies/attention_sweep.h"

namespace headroom::cli {

struct AttentionAsked {
  studies::AttentionSweep sweep;
  std::vector<std::string> dtypes = {"fp32"}, masks = {"full"};
  std::string pass = "both";

  studies::AttentionSweep settings() const;
};
void add_attention(CLI::App&, AttentionAsked&);

}  // namespace headroom::cli
