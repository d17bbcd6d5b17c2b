// Runs a study for a command: shows progress, prints the record, finishes the run, and says where the results are.
#pragma once
#include "cli/command.h"
#include "cli/progress.h"
#include "studies/life.h"

namespace headroom::cli {

// who: the command. elsewhere: what it prints of its progress if standard error is no terminal.
int with_host(const char* who, const Common&, bool resume, const std::function<studies::Outcome(const studies::Host&)>& study,
              Elsewhere elsewhere = Elsewhere::nothing);

// Calls `work` with a host that shows progress; the line is gone when this returns.
void with_progress(const char* who, const Common&, bool resume, Elsewhere, const std::function<void(const studies::Host&)>& work);

// For a study whose command shows no progress, or shows its own.
studies::Host quiet_host(const char* who, const Common&, bool resume = false);

// Shows what a study found; returns the exit code.
int show(studies::Outcome, const Common&);

}  // namespace headroom::cli
