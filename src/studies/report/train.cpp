// The rows of headroom train: the loss over the steps, and what else is worth a line.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "report/described_table.h"
#include "studies/report/parts.h"
#include "studies/report/report.h"
#include "studies/train/train_run.h"

namespace headroom::studies {

namespace {

void add_curve(const std::vector<TrainRow>& rows, const char* title, Unit unit, auto&& value, Record& into) {
  Chart c{title, "step", "", unit, false, {{title, {}}}};
  for (const TrainRow& row : rows)
    if (const std::optional<double> y = value(row)) c.series[0].points.emplace_back(double(row.step), *y);
  if (c.series[0].points.size() >= 2) into.add(Part{std::move(c)});
}

// By step; none where these are rows of something else.
std::vector<TrainRow> training_rows(const std::vector<RowObject>& all, const std::string& name) {
  const auto of_training = [](const RowObject& row) { return row.contains("step") && row.contains("loss") && row.contains("lr"); };
  std::vector<TrainRow> rows;
  if (!std::all_of(all.begin(), all.end(), of_training)) return rows;
  for (const RowObject& row : all) rows.push_back(read_described<TrainRow>(row, name));
  std::stable_sort(rows.begin(), rows.end(), [](const TrainRow& a, const TrainRow& b) { return a.step < b.step; });
  return rows;
}

struct LossPair {  // losses of a step that both runs kept
  std::int64_t step = 0;
  double a_loss = 0, b_loss = 0, difference = 0;
};
void describe(Of<LossPair> auto& p, auto&& f) {
  f(p.step, {.name = "step"});
  f(p.a_loss, {.name = "a_loss", .role = Role::noted});
  f(p.b_loss, {.name = "b_loss", .role = Role::noted});
  f(p.difference, {.name = "difference", .role = Role::noted});
}

// Evenly, with the first and the last.
std::vector<LossPair> some_of(const std::vector<LossPair>& all, std::size_t most) {
  if (all.size() <= most) return all;
  std::vector<LossPair> some;
  for (std::size_t i = 0; i < most; ++i) some.push_back(all[i * (all.size() - 1) / (most - 1)]);
  return some;
}

}  // namespace

void add_loss_curves(const ComparedRun& a, const ComparedRun& b, Record& into) try {
  constexpr std::size_t most_lines = 12;
  const auto of_a = training_rows(a.rows, a.name), of_b = training_rows(b.rows, b.name);
  Chart chart{"Loss of both runs", "step", "", Unit::none, false, {{a.name, {}}, {b.name, {}}}};
  for (const TrainRow& row : of_a) chart.series[0].points.emplace_back(double(row.step), row.loss);
  for (const TrainRow& row : of_b) chart.series[1].points.emplace_back(double(row.step), row.loss);
  std::vector<LossPair> pairs;
  for (std::size_t i = 0, j = 0; i < of_a.size() && j < of_b.size();) {
    if (of_a[i].step == of_b[j].step) {
      pairs.push_back({of_a[i].step, of_a[i].loss, of_b[j].loss, of_b[j].loss - of_a[i].loss});
      ++i;
      ++j;
    } else
      ++(of_a[i].step < of_b[j].step ? i : j);
  }
  if (pairs.size() < 2) return;
  double sum = 0;
  for (const LossPair& p : pairs) sum += p.difference;
  const auto farthest = std::max_element(
      pairs.begin(), pairs.end(), [](const LossPair& x, const LossPair& y) { return std::abs(x.difference) < std::abs(y.difference); });
  Record curves{"loss_curves", fmt::format("Loss of {} against {}", b.name, a.name), {}};
  curves.add("steps_in_common", std::int64_t(pairs.size())).add("mean_difference", sum / double(pairs.size()));
  curves.add("largest_difference", farthest->difference).add("largest_at_step", farthest->step);
  curves.add("last_difference", pairs.back().difference);
  curves.add(Part{std::move(chart)}).add(Part{table_of("losses", "", some_of(pairs, most_lines))});
  into.add(Part{std::move(curves)});
} catch (const Error&) {  // another program's rows
}

void add_train(const ReportRun& run, Record& into) try {
  const auto rows = training_rows(run.rows(), run.name);
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
