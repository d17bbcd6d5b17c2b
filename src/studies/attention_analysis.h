// What the rows of a sweep say together: exponents, edges, the account of what did not fit, flash against plain.
#pragma once
#include "studies/attention_sweep.h"

namespace headroom::studies {

Record analysis_of(const AttentionSweep&, const Device&, const std::vector<AttentionRow>&);

// The whole answer of `headroom attention`: device, rows, analysis.
Record attention_record(const AttentionSweep&, const Device&, const SweepResult&);

}  // namespace headroom::studies
