// The report on one or more runs. For two runs it starts with their differences. Then the machines and their ceilings, the runs, and of each run
// its charts and its tables. A Record, so that it prints as a page, as Markdown, or as data.
#pragma once
#include <optional>

#include "report/record.h"
#include "store/results.h"
#include "studies/report/run.h"
#include "studies/results/comparison.h"

namespace headroom::studies {

// `store` is asked for the ceilings of the runs' machines; null: there is none yet.
Record report_of(const std::vector<ReportRun>&, const Results* store);

// What a comparison of two runs compares: their rows, or for a profile the times of the step and of each phase, module and kernel.
ComparedRun compared(const ReportRun&);
// The kind of a run's rows: a run of the store names its command, a file all words that were typed. Empty: of no one kind, or not known.
std::string kind_of(const std::string& command);
// Whether rows of these two commands are of one kind: rows of "attention" and "train" are not, those of a forecast and of a profile are.
bool of_one_kind(const std::string& command_a, const std::string& command_b);

// Adds the losses of two runs of headroom train in one chart, and how far apart they are. Other runs get nothing.
void add_loss_curves(const ComparedRun& a, const ComparedRun& b, Record&);

// The same with the charts that a report makes of such rows, for a command's own page. What has charts stays as it is.
Record with_charts(Record);

// Without a word of what to show: the newest run of every command on every machine that has rows, oldest first.
std::vector<ReportRun> newest_runs(const Results&);

}  // namespace headroom::studies
