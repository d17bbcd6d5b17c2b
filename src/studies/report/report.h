// The report: what runs say together. Two runs: their differences first. Then the machines and their ceilings, what was run, and of each run
// its charts and its tables. A Record, so that it prints as a page, as Markdown, or as data.
#pragma once
#include <optional>

#include "report/record.h"
#include "store/results.h"
#include "studies/comparison.h"
#include "studies/report/run.h"

namespace headroom::studies {

// `store` is asked for the ceilings of the runs' machines; null: there is none yet.
Record report_of(const std::vector<ReportRun>&, const Results* store);

// What two runs are held against each other by: their rows, or of a profile its times: of the step, and of each phase, module and kernel.
ComparedRun compared(const ReportRun&);

// Without a word of what to show: the newest run of every command on every machine that has rows, oldest first.
std::vector<ReportRun> newest_runs(const Results&);

}  // namespace headroom::studies
