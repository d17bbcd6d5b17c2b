// The study behind `headroom attention`: the sweep, its run in the store, and the analysis of its rows.
#pragma once
#include "studies/attention/sweep.h"
#include "studies/life.h"

namespace headroom::studies {

Outcome attention_study(const AttentionSweep&, const Device&, const Host&);

}  // namespace headroom::studies
