// The tables of a profile, read from a timeline. Milliseconds, FLOPs and bytes are means per step.
//
// Rows, as JSON has them (headroom report reads these names):
//   kernels   kernel kind count ms share mean_us                         phases   phase ms share tflops bytes_per_s
//   modules   module part forward_ms backward_ms optimizer_ms ms share   layers   layer forward_ms backward_ms ms
//   work      phase ms matmul_ms attention_ms softmax_ms other_ms idle_ms matmul_share
//   attention what ms time_share gflop flops_share tflops
//   roofline  op precision count ms gflop intensity tflops bytes_per_s roof_tflops bound roof_share
//   gaps      after before count ms longest_us                           timeline start_ms ms kernel op part module layer phase stream step
//   memory    at_ms live_bytes bytes name shape phase                    at_peak  name shape dtype bytes phase
#pragma once
#include <optional>
#include <string>

#include "base/device.h"
#include "instruments/profile/timeline.h"
#include "report/record.h"

namespace headroom::studies {

struct ProfileTables {
  const profile::Timeline& timeline;
  Ceilings ceilings;
  Precision precision;  // of the model: what FP32 products are formed in

  Table kernels() const, phases() const, modules() const, layers() const, attention() const, roofline() const, gaps() const,
      timeline_rows() const, memory() const;
  Table work() const;  // without rows
  void add_work(Table&, const std::string& phase) const;
  double step_ms() const;                     // mean
  std::optional<double> step_ms_std() const;  // of a step; nothing of a single one
  double steps() const;
  double covered() const;              // share of the steps in which something ran
  std::string roofline_chart() const;  // drawn in text; empty when a ceiling is missing
};

Table at_peak_table(const std::vector<Entry>&, std::size_t most);

}  // namespace headroom::studies
