// The rows of headroom step: what forward, backward and the optimiser take of a step, and the live bytes of the step, walked dry again.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "engine/forecast/forecast.h"
#include "engine/model/models.h"
#include "studies/memory/live_bytes.h"
#include "studies/report/parts.h"
#include "studies/step/step_time.h"

namespace headroom::studies {

namespace {

// Rows of one step measured in three ways: the differences are the phases.
void add_phases(const std::vector<RowObject>& rows, Record& into) {
  std::vector<std::string> ticks;
  std::map<std::string, std::map<std::string, double>> ms;
  for (const RowObject& row : rows) {
    const std::string phase = text_at(row, "phase");
    if (phase.empty() || number_at(row, "ms") <= 0) continue;
    const std::string scales = text_at(row, "scales");  // fp8's
    const std::string tick = fmt::format("{} len {} {}{}{}", text_at(row, "model"), std::int64_t(number_at(row, "len")),
                                         text_at(row, "precision"), scales.empty() ? "" : " ", scales);
    if (!ms.contains(tick)) ticks.push_back(tick);
    ms[tick][phase] = number_at(row, "ms");
  }
  Chart c{"Step time by phase", "", "ms", Unit::ms, false, {{"forward", {}}, {"backward", {}}, {"optimiser", {}}}, Chart::Kind::bars};
  for (const std::string& tick : ticks) {
    const auto& m = ms[tick];
    if (!m.contains("forward") || !m.contains("forward+backward") || !m.contains("train")) continue;
    const double forward = m.at("forward"), both = m.at("forward+backward"), at = double(c.ticks.size());
    c.ticks.push_back(tick);
    c.series[0].points.emplace_back(at, forward);
    c.series[1].points.emplace_back(at, std::max(0.0, both - forward));
    c.series[2].points.emplace_back(at, std::max(0.0, m.at("train") - both));
  }
  if (!c.ticks.empty()) into.add(Part{std::move(c)});
}

// The largest step of the run, from its settings; nothing when they do not describe one.
void add_live_bytes(const ReportRun& run, Record& into) try {
  const RowObject& s = run.settings;
  if (!s.contains("models") || !s["models"].is_array() || run.rows().empty()) return;
  const RowObject& last = run.rows().back();
  const auto model = std::find_if(s["models"].begin(), s["models"].end(),
                                  [&](const RowObject& m) { return m.is_object() && text_at(m, "name") == text_at(last, "model"); });
  if (model == s["models"].end()) return;
  const StepTime asked = read_described<StepTime>(s, run.name);
  const auto levers = each_of(asked.levers);
  if (levers.empty()) return;
  StepRow blank;
  blank.levers = levers.front();  // a run of earlier versions has levers in its settings alone
  const StepRow row = read_described<StepRow>(last, run.name, blank);
  engine::Recipe r = recipe_of(asked, engine::model_from_json(model->dump(), row.model), row.levers, row.len, row.phase);
  const Device device = device_of(run);
  if (device.memory_bytes == 0) {  // neither here nor known by name: whose kernels' tensors would be counted?
    into.add(Part{Note{fmt::format("Live bytes are not forecast here: nothing is known of '{}'.", run.machine)}});
    return;
  }
  const int workers = device.kind == DeviceKind::cpu ? std::max(1, int(number_at(s, "threads"))) : 1;
  engine::find_keep(r, asked.memory.value_or(device.memory_bytes), device, workers);
  const auto forecast = engine::forecast(r, device, workers);
  Chart c = live_bytes_chart(forecast, asked.memory.value_or(device.memory_bytes));
  c.choice = fmt::format("{} len {} {}", r.model.name, r.len, name_of(r.precision));
  into.add(Part{std::move(c)});
} catch (const Error&) {  // a model that this version does not know
}

}  // namespace

void add_step(const ReportRun& run, Record& into) {
  add_phases(run.rows(), into);
  add_live_bytes(run, into);
}

}  // namespace headroom::studies
