// Writes a timeline into a trace, as one process of it.
#pragma once
#include "instruments/profile/timeline.h"
#include "instruments/profile/trace.h"

namespace headroom::profile {

void write_trace(TraceWriter&, const Timeline&, int process, std::string_view name);

}  // namespace headroom::profile
