// The variant of attention that a dry run walks.
#pragma once
#include "ops/attention/attention.h"

namespace headroom::attention {

// As choose. Where no row of this build serves a card, the CPU's row of that family lends its tensors, if the library's kernels run on such a card
// at all.
const Variant& choose_dry(const Problem&, const Device&, std::string_view wanted);

}  // namespace headroom::attention
