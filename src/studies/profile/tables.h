// The tables of a profile, read from a timeline. Milliseconds, FLOPs and bytes are means per step.
// Their rows: rows.h.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/device.h"
#include "instruments/profile/timeline.h"
#include "report/record.h"
#include "studies/profile/rows.h"

namespace headroom::studies {

struct ProfileTables {
  const profile::Timeline& timeline;
  Ceilings ceilings;
  Precision precision;  // the model's: FP32 products are formed in it

  Table kernels() const, phases() const, modules() const, layers() const, attention() const, roofline() const, gaps() const,
      timeline_rows() const, memory() const;
  std::vector<KernelTimeRow> kernel_rows() const;  // the one that takes the most time first
  WorkRow work(const std::string& phase) const;
  double step_ms() const;                     // mean
  std::optional<double> step_ms_std() const;  // spread of a step's time; none for a single step
  double steps() const;
  double covered() const;              // share of the steps in which something ran
  std::string roofline_chart() const;  // drawn in text; empty when a ceiling is missing
};

Table at_peak_table(const std::vector<Entry>&, std::size_t most);

}  // namespace headroom::studies
