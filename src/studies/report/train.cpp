// The rows of headroom train: the loss over the steps, and what else is worth a line.
#include <algorithm>

#include "base/error.h"
#include "studies/report/parts.h"
#include "studies/train/train_run.h"

namespace headroom::studies {

namespace {

void add_curve(const std::vector<TrainRow>& rows, const char* title, Unit unit, auto&& value, Record& into) {
  Chart c{title, "step", "", unit, false, {{title, {}}}};
  for (const TrainRow& row : rows)
    if (const std::optional<double> y = value(row)) c.series[0].points.emplace_back(double(row.step), *y);
  if (c.series[0].points.size() >= 2) into.add(Part{std::move(c)});
}

}  // namespace

void add_train(const ReportRun& run, Record& into) try {
  const auto of_training = [](const RowObject& row) { return row.contains("step") && row.contains("loss") && row.contains("lr"); };
  if (run.rows().empty() || !std::all_of(run.rows().begin(), run.rows().end(), of_training)) return;
  std::vector<TrainRow> rows;
  for (const RowObject& row : run.rows()) rows.push_back(read_described<TrainRow>(row, run.name));
  std::stable_sort(rows.begin(), rows.end(), [](const TrainRow& a, const TrainRow& b) { return a.step < b.step; });
  add_curve(
      rows, "Loss", Unit::none, [](const TrainRow& r) { return std::optional(r.loss); }, into);
  add_curve(
      rows, "Gradient norm", Unit::none, [](const TrainRow& r) { return r.grad_norm; }, into);
  add_curve(
      rows, "Learning rate", Unit::none, [](const TrainRow& r) { return std::optional(r.lr); }, into);
  add_curve(
      rows, "Tokens per second", Unit::per_s, [](const TrainRow& r) { return std::optional(r.tokens_per_s); }, into);
} catch (const Error&) {  // another program's rows: shown as they are
}

}  // namespace headroom::studies
