// The names of an attention problem's sizes, and the probe that distinguishes them (see formula_of in account.h).
#pragma once
#include <utility>
#include <vector>

#include "memory/account.h"
#include "ops/attention/attention.h"

namespace headroom::attention {

struct SymbolProbe {
  attention::Problem problem;  // like the given one where that matters (mask, type, which sizes are equal), every size different
  std::vector<Symbol> symbols;
};

SymbolProbe probe_of(const attention::Problem&);

}  // namespace headroom::attention
