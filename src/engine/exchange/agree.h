// Before ranks take their first step together, each shows the others what it is going to do: the calls that reach other ranks, in order,
// with their bytes, types and places in memory, and what else must be the same. A difference is an error that names it, not a hang.
#pragma once
#include <string>

#include "dist/comm.h"
#include "engine/pass/training.h"

namespace headroom::engine {

// Every rank calls; an Error (bad_argument) on every rank where they differ.
void agree(const Recipe&, Context&, dist::Comm&);
// The same text on every rank; `what` is what it is called when it is not.
void agree_on(const std::string& text, const char* what, Context&, dist::Comm&);

}  // namespace headroom::engine
