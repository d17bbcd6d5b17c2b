// The largest sizes that fit, as a table.
#pragma once
#include "report/record.h"
#include "studies/memory/room.h"
#include "studies/memory/rows.h"

namespace headroom::studies {

Table edge_table(const std::vector<LargestRow>&, const Room&);

}  // namespace headroom::studies
