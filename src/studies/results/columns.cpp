#include "studies/results/columns.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "report/described_table.h"
#include "studies/attention/analysis.h"
#include "studies/bench/rows.h"
#include "studies/comm/comm_time.h"
#include "studies/device/ceilings.h"
#include "studies/device/described.h"
#include "studies/forecast/tries.h"
#include "studies/memory/rows.h"
#include "studies/plan/plan.h"
#include "studies/plan/pytorch.h"
#include "studies/precision/rows.h"
#include "studies/profile/program_rows.h"
#include "studies/profile/rows.h"
#include "studies/results/comparison.h"
#include "studies/results/run_row.h"
#include "studies/step/quantised.h"
#include "studies/step/step_time.h"
#include "studies/train/train_run.h"

namespace headroom::studies {

namespace {

struct RowKind {
  std::string table;
  std::vector<Column> columns;
};

const std::vector<RowKind>& row_kinds() {
  static const std::vector<RowKind> kinds = {
      {"rows", columns_of<AttentionRow>()},
      {"rows", columns_of<StepRow>()},
      {"rows", columns_of<CeilingRow>()},
      {"rows", columns_of<TrainRow>()},
      {"rows", columns_of<TimedLine>()},
      {"rows", columns_of<PlanRow>()},
      {"rows", columns_of<PyTorchPlanRow>()},
      {"ways", columns_of<PyTorchWayRow>()},
      {"rows", columns_of<ModelMemoryRow>()},
      {"rows", columns_of<PyTorchModelRow>()},
      {"rows", columns_of<InferenceRow>()},
      {"rows", columns_of<AttentionMemoryRow>()},
      {"rows", columns_of<CommRow>()},
      {"rows", columns_of<BenchRow>()},
      {"rows", columns_of<RunRow>()},
      {"rows", columns_of<PeerCell>()},
      {"rows", columns_of<ForecastRow>()},
      {"rows", columns_of<precision::AccumulateRow>()},
      {"rows", columns_of<precision::NormRow>()},
      {"rows", columns_of<precision::FormatRow>()},
      {"rows", columns_of<precision::AutocastRow>()},
      {"rows", columns_of<precision::Fp8Row>()},
      {"runs", columns_of<RunRow>()},
      {"time", columns_of<OpTimeRow>()},
      {"summary", columns_of<precision::Fp8SummaryRow>()},
      {"hurts", columns_of<precision::Fp8CaseRow>()},
      {"formats", columns_of<precision::SmallFormatRow>()},
      {"ceilings", columns_of<CeilingRow>()},
      {"exponents", columns_of<GrowthRow>()},
      {"edge", columns_of<EdgeRow>()},
      {"against_plain", columns_of<AgainstPlainRow>()},
      {"device", columns_of<DeviceFields>()},
      {"comm", columns_of<CommRow>()},
      {"components", columns_of<ComponentRow>()},
      {"largest", columns_of<AccountRow>()},
      {"largest", columns_of<ModelTensorRow>()},
      {"measured", columns_of<MeasuredStepRow>()},
      {"edge", columns_of<LargestRow>()},
      {"analysis", columns_of<AttentionGrowthRow>()},
      {"scaling", columns_of<ScalingRow>()},
      {"on_paper", columns_of<PaperRow>()},
      {"mitigations", columns_of<AttentionSavingRow>()},
      {"mitigations", columns_of<ModelSavingRow>()},
      {"mitigations", columns_of<PyTorchSavingRow>()},
      {"beside", columns_of<PyTorchBesideRow>()},
      {"beside", columns_of<BesideRow>()},
      {"losses", columns_of<LossRow>()},
      {"limits", columns_of<precision::NormLimitRow>()},
      {"blocks", columns_of<precision::BlockRow>()},
      {"summary", columns_of<precision::AutocastSummaryRow>()},
      {"kernels", columns_of<KernelTimeRow>()},
      {"phases", columns_of<PhaseRow>()},
      {"phases", columns_of<PeakPhaseRow>()},
      {"modules", columns_of<ModuleRow>()},
      {"layers", columns_of<LayerRow>()},
      {"work", columns_of<WorkRow>()},
      {"quantised", columns_of<QuantisedRow>()},
      {"attention", columns_of<AttentionPartRow>()},
      {"gaps", columns_of<GapRow>()},
      {"roofline", columns_of<RooflineRow>()},
      {"timeline", columns_of<SliceRow>()},
      {"timeline", columns_of<LiveRow>()},
      {"memory", columns_of<MomentRow>()},
      {"at_peak", columns_of<StandingRow>()},
      {"kernels", columns_of<ProgramKernelRow>()},
      {"phases", columns_of<ProgramPhaseRow>()},
      {"gaps", columns_of<ProgramGapRow>()},
      {"pauses", columns_of<PauseRow>()},
      {"memory", columns_of<ProgramMomentRow>()},
      {"timeline", columns_of<ProgramSliceRow>()},
      {"policy_tensors", columns_of<precision::PolicyTensorRow>()},
      {"policy_ops", columns_of<precision::PolicyOpRow>()},
      {"ranks", columns_of<RankRow>()},
      {"lanes", columns_of<LaneRow>()},
      {"ranks", columns_of<ForecastRankRow>()},
      {"phases", columns_of<ForecastPhaseRow>()},
      {"at_peak", columns_of<ForecastBlockRow>()},
      {"saved", columns_of<ForecastBlockRow>()},
      {"curve", columns_of<ForecastMomentRow>()},
      {"steps_done", columns_of<ForecastStepRow>()},
      {"tries", columns_of<ForecastTryRow>()},
      {"values", columns_of<UnknownValueRow>()},
      {"functions", columns_of<OnlyAcceptedRow>()},
  };
  return kinds;
}

struct Match {
  const RowKind* kind = nullptr;
  std::size_t columns = 0;  // columns of the kind that are fields of the row
};

// The kind of this table that most of the row's fields belong to; none if fewer than half do.
Match kind_of(std::string_view table, const RowObject& row) {
  Match best;
  std::size_t fields = 0;
  for (const auto& [field, value] : row.items()) fields += !value.is_structured();
  for (const RowKind& kind : row_kinds()) {
    if (kind.table != table) continue;
    const auto matched =
        std::size_t(std::count_if(kind.columns.begin(), kind.columns.end(), [&](const Column& c) { return row.contains(c.name); }));
    if (matched > best.columns) best = {&kind, matched};
  }
  return 2 * best.columns > fields ? best : Match{};
}

// For fields without a description.
Unit unit_by_words(const std::string& field) {
  const auto is = [&](std::string_view word) {
    return field == word || (field.ends_with(word) && field[field.size() - word.size() - 1] == '_');
  };
  if (is("bytes_per_s")) return Unit::bytes_per_s;
  if (is("flops_per_s")) return Unit::flops;
  if (is("per_s")) return Unit::per_s;
  if (is("bytes")) return Unit::bytes;
  if (is("ms") || field.ends_with("_ms_std")) return Unit::ms;
  if (is("tflops")) return Unit::tflops;
  if (is("share") || field.find("_share_") != std::string::npos || field == "mfu" || is("counted")) return Unit::share;
  if (is("error") || field.starts_with("max_error")) return Unit::error;
  if (is("ratio") || is("faster") || is("fewer")) return Unit::ratio;
  return Unit::none;
}

Column column_by_words(const std::string& field) {
  const Unit unit = unit_by_words(field);
  const bool spread = field.ends_with("_std");
  constexpr std::array beside = {"device", "why", "steps", "warmup"};
  const bool noted = spread || unit == Unit::ratio || unit == Unit::share || unit == Unit::tflops || unit == Unit::flops ||
                     unit == Unit::bytes_per_s || unit == Unit::per_s || std::find(beside.begin(), beside.end(), field) != beside.end();
  const bool measured = unit != Unit::none || field == "status" || field == "loss" || field.ends_with("_s");
  const bool narrow = spread || field.starts_with("max_error_d") || field == "device" || field == "why";
  return {field, unit, narrow ? Show::detail : Show::always, noted ? Role::noted : measured ? Role::measured : Role::asked};
}

}  // namespace

Columns::Columns(std::string_view table, std::span<const RowObject> rows) {
  const auto [kind, columns] = rows.empty() ? Match{} : kind_of(table, rows.front());
  if (!kind) return;
  described_ = true;
  ours_ = 2 * columns > kind->columns.size();
  for (const Column& c : kind->columns) known_.emplace(c.name, c);
}

bool Columns::measures(const RowObject& row) const {
  return ours_ || std::ranges::any_of(row.items(), [&](const auto& field) {
           const Column& c = of(field.key());
           return (c.role == Role::measured || c.unit != Unit::none) && (field.value().is_number() || field.key() == "status");
         });
}

const Column& Columns::of(const std::string& field) const {
  const auto at = known_.find(field);
  return at != known_.end() ? at->second : known_.emplace(field, column_by_words(field)).first->second;
}

}  // namespace headroom::studies
