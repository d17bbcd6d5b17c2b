// The answer about one program in sentences, and the parts that its row says too.
#pragma once
#include <string>

#include "studies/forecast/told.h"

namespace headroom::studies {

std::string where(const RanOut&);    // "in step 1, forward, train.py:20", or "before the first step, train.py:5"
std::string own_limit(const Told&);  // the program's line that lets PyTorch reserve only a part; empty: none does
std::string early(const Told&);      // why one step shows no more than one step
std::string verdict(const Told&);    // a sentence or two

}  // namespace headroom::studies
