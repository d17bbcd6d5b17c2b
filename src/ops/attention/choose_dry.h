// The variant of attention that a dry run walks, and the family of a wanted one.
#pragma once
#include "ops/attention/attention.h"

namespace headroom::attention {

std::string_view family_of(std::string_view wanted);  // a variant's family, or the family itself; empty: no such word

// As choose. An error also says what serves the problem in place of what was wanted.
const Variant& choose_dry(const Problem&, const Device&, std::string_view wanted);

// The same for a forecast of a server, which has kernels of its own: a forward pass that no row serves is one that notes its cost, takes no scratch and
// does not run.
const Variant& choose_for_server(const Problem&, const Device&, std::string_view wanted);

}  // namespace headroom::attention
