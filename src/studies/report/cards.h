// Files of headroom bench on one page: a card beside the others, then each card's tables.
#pragma once
#include <vector>

#include "report/record.h"
#include "studies/report/run.h"

namespace headroom::studies {

bool is_bench(const ReportRun&);
// What every card came to: geometric means over the peers, cells that are lost, tables that were not measured.
Record cards_of(const std::vector<ReportRun>&);
// Each of its tables as a run of its own.
std::vector<ReportRun> tables_of_bench(const ReportRun&);

}  // namespace headroom::studies
