// What a report says of one run, by what its rows hold: each part adds what it can make of them, and nothing when it can make nothing.
#pragma once
#include "base/device.h"
#include "report/record.h"
#include "studies/report/run.h"

namespace headroom::studies {

// Rows of headroom attention: times and bytes over the length to the edge of memory, and plain against flash. Whether the run holds any.
bool add_attention(const ReportRun&, Record&);

void add_growth(const ReportRun&, Record&);    // other rows with a length: times and bytes over it, with fitted exponents
void add_forecast(const ReportRun&, Record&);  // rows with x and forecast_x: one against the other
void add_step(const ReportRun&, Record&);      // rows of headroom step: phases, and the step's live bytes
void add_plan(const ReportRun&, Record&);      // rows of headroom plan: bytes against time
void add_train(const ReportRun&, Record&);     // rows of headroom train: the loss over the steps
void add_profile(const ReportRun&, Record&);   // tables of headroom profile: timeline, modules, roofline, live bytes
void add_program(const ReportRun&, Record&);   // rows of headroom forecast: live bytes, phases, what is allocated at the peak

// The machine that the run names: the one here, one that is known by name, or what the file says of it. Without memory: not known.
Device device_of(const ReportRun&);

std::string with_exponent(const std::string& name, const std::vector<std::pair<double, double>>&);  // "flash · ~ len^1.98", fitted

// A table's title, for the names that commands give.
std::string title_of(const std::string& table);

}  // namespace headroom::studies
