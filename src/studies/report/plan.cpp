// The rows of headroom plan: bytes against time.
#include <algorithm>

#include "base/error.h"
#include "store/described_json.h"
#include "studies/plan/picture.h"
#include "studies/report/parts.h"

namespace headroom::studies {

void add_plan(const ReportRun& run, Record& into) try {
  const auto of_plan = [](const RowObject& row) {
    return row.contains("needed_bytes") && row.contains("frontier") && row.contains("keep");
  };
  if (run.rows().empty() || !std::all_of(run.rows().begin(), run.rows().end(), of_plan)) return;
  std::vector<PlanRow> rows;
  for (const RowObject& row : run.rows()) rows.push_back(read_described<PlanRow>(row, run.name));
  if (auto picture = picture_of(rows, 0)) into.add(Part{*std::move(picture)});
} catch (const Error&) {  // rows that this version does not know
}

}  // namespace headroom::studies
