#include "studies/results/step_ops.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "report/described_table.h"

namespace headroom::studies {

namespace {

bool has_table(const RowObject& j, const char* name) {
  return j.is_object() && j.contains(name) && j.at(name).is_array() && !j.at(name).empty() && j.at(name).front().is_object();
}
bool is_forecast(const RowObject& j) { return has_table(j, "rows") && has_table(j.at("rows").front(), "time"); }
bool is_profile(const RowObject& j) {  // a profile of our step: its slices know their op
  return has_table(j, "timeline") && j.at("timeline").front().contains("op") && j.at("timeline").front().contains("step");
}

}  // namespace

std::optional<OpsJoined> joined_ops(const RowObject& a, const RowObject& b) {
  if (is_forecast(b) && is_profile(a)) return joined_ops(b, a);
  if (!is_forecast(a) || !is_profile(b)) return {};
  check(a.at("rows").size() == 1, Code::bad_argument,
        "the forecast has {} steps; a profile is held against one: give memory model one setting", a.at("rows").size());
  const std::string forecast_phase = text_at(a.at("rows").front(), "phase"), profile_phase = text_at(b, "phase");
  check(forecast_phase.empty() || profile_phase.empty() || forecast_phase == profile_phase, Code::bad_argument,
        "the forecast is of phase {}, the profile of phase {}: give both the same --phase", forecast_phase, profile_phase);
  std::map<std::string, OpPairRow> ops;
  OpsJoined joined;
  const RowObject& time = a.at("rows").front().at("time");
  const auto has_ms = [](const RowObject& op) { return op.contains("ms") && op.at("ms").is_number(); };
  check(std::any_of(time.begin(), time.end(), has_ms), Code::bad_argument,
        "the forecast has no expected times of ops; `ms_by` in its file says why");
  for (const RowObject& op : time) {
    OpPairRow& row = ops[text_at(op, "op")];
    const double ms = has_ms(op) ? number_at(op, "ms") : 0;  // what goes over a link runs beside the step
    row.times = row.times.value_or(0) + number_at(op, "count");
    row.forecast_ms += ms, joined.forecast_ms += ms;
  }
  double last = 0;
  for (const RowObject& slice : b.at("timeline")) last = std::max(last, number_at(slice, "step"));
  for (const RowObject& slice : b.at("timeline")) {
    if (number_at(slice, "step") != last) continue;
    OpPairRow& row = ops[text_at(slice, "op")];
    const double ms = number_at(slice, "ms");
    row.launches = row.launches.value_or(0) + 1;
    row.ms += ms, joined.ms += ms;
  }
  for (auto& [name, row] : ops) {
    row.op = name.empty() ? "(no op of ours)" : name;
    row.off_ms = row.forecast_ms - row.ms;
    if (row.forecast_ms > 0 && row.ms > 0) row.ratio = row.forecast_ms / row.ms;
    joined.rows.push_back(row);
  }
  std::stable_sort(joined.rows.begin(), joined.rows.end(),
                   [](const OpPairRow& x, const OpPairRow& y) { return std::abs(x.off_ms) > std::abs(y.off_ms); });
  return joined;
}

Record ops_record(const OpsJoined& o) {
  Record r{"ops", fmt::format("Ops of a step: {:.4g} ms forecast, {:.4g} ms measured.", o.forecast_ms, o.ms), {}};
  r.add("forecast_ms", o.forecast_ms, Unit::ms).add("ms", o.ms, Unit::ms);
  r.add("ratio", o.ms > 0 ? Value(o.forecast_ms / o.ms) : Value(), Unit::ratio);
  r.add(Part{table_of("ops", "Ops, the largest difference first; ratio is forecast over measured", o.rows)});
  r.add(
      Part{Note{"The last step of the profile. What goes to other ranks and the host has no time in the forecast; what the step waits for "
                "them is its "
                "row \"waits for links\"."}});
  return r;
}

}  // namespace headroom::studies
