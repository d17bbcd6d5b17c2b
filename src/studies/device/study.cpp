#include "studies/device/study.h"

#include "base/text.h"
#include "gpu/clocks.h"
#include "report/described_table.h"
#include "studies/device/ceilings.h"
#include "studies/device/described.h"
#include "studies/device/efficiencies.h"

namespace headroom::studies {

namespace {

Record clocks_in_words(const Clocks& c) {
  Record r{"clocks", "Clocks now", {}};
  r.add("driver", c.driver).add("sm_mhz", std::int64_t(c.sm_mhz)).add("most_sm_mhz", std::int64_t(c.most_sm_mhz));
  r.add("celsius", std::int64_t(c.celsius)).add("watts", c.watts).add("most_watts", c.most_watts);
  return r.add("held_back", joined(c.held_back));
}

// Steps, what follows from them, and how far to believe it.
void add_efficiencies(const Device& d, const Ceilings& ceilings, const DeviceAsked& asked, const Host& host, Life& life, Record& record) {
  EfficienciesAsked steps = usual_efficiencies(d);
  if (!asked.precisions.empty()) steps.precisions = asked.precisions;
  const MeasuredEfficiencies m = measure_efficiencies(d, ceilings, steps, host.stop, host.progress);
  if (host.stop()) return;
  for (const EfficiencyStep& s : m.steps) life.keep(key_of(s), json_of(s));
  for (const EfficiencyRow& r : m.by_precision) life.keep(key_of(r), json_of(r));
  record.add(Part{table_of("steps", "Steps measured, and what each is forecast to take from the steps of all other models", m.steps)});
  if (m.by_precision.empty()) return;
  const bool over_units = m.by_precision.front().of_units;
  record.add(Part{table_of("efficiencies",
                           over_units ? "What an op takes here, over what its kernels took on an H100 and H200, by its kind"
                                      : "Times its roofline that an op takes, by its kind",
                           m.by_precision)});
  record.add(
      Part{Note{fmt::format("{}Forecasts of this machine give ms from these numbers, and an interval from `within`: of every step here ms, "
                            "forecast from the steps of other "
                            "models, was no further off than that factor.",
                            over_units ? "" : "Beside that an op takes forward_op_ms or backward_op_ms. ")}});
  for (const std::string& why : m.left_out) record.add(Part{Note{fmt::format("Left out: {}.", why)}});
}

}  // namespace

Record device_record(const Device& d) {
  Record r, device{"device", d.name, {}};
  r.add(Part{add_fields(device, fields_of(d))});
  if (const auto clocks = clocks_of(d)) r.add(Part{clocks_in_words(*clocks)});
  return r;
}

Record known_devices_record() {
  std::vector<KnownRow> rows;
  for (const Device& d : known_devices()) rows.push_back(known_row(d));
  Record r;
  r.add(Part{table_of("known", "Machines known by name", rows)});
  return r.add(Part{Note{"beside: memory that no tensor can have: the driver's, the context, libraries. Plans and forecasts count it."}});
}

Outcome device_study(const Device& d, const DeviceAsked& asked, const Host& host) {
  Outcome outcome{device_record(d)};
  Life life(host, "device", json_of(asked), d.name);
  const MeasuredCeilings measured = measure_ceilings(d, {.warmup = 2, .steps = asked.steps, .seconds = asked.seconds}, host.stop);
  for (const CeilingRow& r : measured.rows) life.keep(key_of(r), json_of(r));
  const bool gpu = d.kind == DeviceKind::cuda;
  Table t = table_of("ceilings", fmt::format("Measured: {}", measured.how), measured.rows);
  if (gpu) {
    t.show("host_bytes_per_s", Show::always);
    t.show("sm_mhz", Show::always);
    t.show("held_back", Show::always);
  }
  outcome.record.add(Part{std::move(t)});
  if (gpu) outcome.record.add(Part{Note{std::string("Timed by ") + gpu_timing + "."}});
  if (const auto link = host_link_of(measured.rows))
    outcome.record.add(
        Part{Note{fmt::format("{:.1f} GB/s to or from pinned host memory: forecasts of --keep host and auto go by it.", *link / 1e9)}});
  else if (!measured.without_host_link.empty())
    outcome.record.add(Part{Note{fmt::format("No link to host memory was measured: {}.", measured.without_host_link)}});
  const auto after = gpu ? clocks_of(d) : std::nullopt;
  for (const CeilingRow& r : measured.rows)
    if (after && r.sm_mhz && *r.sm_mhz < after->most_sm_mhz && !r.held_back.empty())
      outcome.record.add(Part{Note{fmt::format("{} {} {}: the card ran at {} of {} MHz, limited by its {}.", r.what, r.dtype, r.size,
                                               *r.sm_mhz, after->most_sm_mhz, r.held_back)}});
  if (asked.efficiencies && !host.stop()) add_efficiencies(d, measured.ceilings, asked, host, life, outcome.record);
  const bool stopped = host.stop();
  outcome.answer = stopped ? Answer::failed : Answer::yes;
  outcome.stopped = stopped;
  outcome.said = stopped ? life.stopped("before every ceiling was measured",
                                        "the ceilings above are not kept as this machine's; give the command again to measure them all")
                         : life.name();
  if (!stopped) outcome.life.emplace(std::move(life));
  return outcome;
}

namespace {

bool is_what(const RowObject& row, const char* word) {
  const auto at = row.find("what");
  return at != row.end() && *at == word;
}
bool is_of_efficiencies(const RowObject& row) { return is_what(row, "step") || is_what(row, "efficiency"); }

struct KeptRows {  // a finished run's
  std::int64_t run;
  std::vector<CeilingRow> rows;
};

// The newest run that `serves`.
std::optional<KeptRows> kept_rows(const Device& d, const std::string& store,
                                  const std::function<bool(const std::vector<CeilingRow>&)>& serves) {
  const auto results = results_if_any(store);
  for (const StoredRun& run : results ? results->runs() : std::vector<StoredRun>()) {
    if (run.command != "device" || run.machine != d.name || run.finished.empty()) continue;
    KeptRows kept{run.id, {}};
    for (const RowObject& row : row_objects(*results, run.id))
      if (!is_of_efficiencies(row)) kept.rows.push_back(read_described<CeilingRow>(row, "results: a ceiling"));
    for (const CeilingRow& r : kept.rows)
      check((r.what == "copy" || r.what == "matmul" || r.host_bytes_per_s) && r.copy_bytes_per_s.value_or(0) >= 0 &&
                r.flops_per_s.value_or(0) >= 0 && r.host_bytes_per_s.value_or(1) > 0,
            Code::io, "results: the ceilings in run {} of '{}' are damaged; headroom device measures them again", run.id, results->file());
    if (serves(kept.rows)) return kept;
  }
  return {};
}

}  // namespace

std::shared_ptr<const Efficiencies> kept_efficiencies(const Device& d, const std::string& store) {
  const auto results = results_if_any(store);
  for (const StoredRun& run : results ? results->runs() : std::vector<StoredRun>()) {
    if (run.command != "device" || run.machine != d.name || run.finished.empty()) continue;
    Efficiencies e;
    std::vector<CeilingRow> ceilings;
    for (const RowObject& row : row_objects(*results, run.id)) {
      if (is_what(row, "efficiency")) {
        const auto kept = read_described<EfficiencyRow>(row, "results: an efficiency");
        e.by_precision.push_back(kept.efficiency);
        e.by_precision.back().of_kernels = kept.of_kernels, e.by_precision.back().of_units = kept.of_units;
      }
      if (!is_of_efficiencies(row)) ceilings.push_back(read_described<CeilingRow>(row, "results: a ceiling"));
    }
    if (e.by_precision.empty()) continue;
    e.ceilings = best_of(ceilings);
    e.source = fmt::format("measured by headroom device, run {}", run.id);
    return std::make_shared<const Efficiencies>(std::move(e));
  }
  return nullptr;
}

std::optional<double> kept_host_link(const Device& d, const std::string& store) {
  const auto kept = kept_rows(d, store, [](const auto& rows) { return host_link_of(rows).has_value(); });
  return kept ? host_link_of(kept->rows) : std::nullopt;
}

std::optional<Ceilings> kept_ceilings(const Device& d, const std::string& store) {
  if (const auto kept = kept_rows(d, store, [](const auto&) { return true; })) {
    Ceilings c = best_of(kept->rows);
    if (c.fp8_flops == 0) c.fp8_flops = d.ceilings.fp8_flops;
    c.link_bytes_per_s = d.ceilings.link_bytes_per_s;
    c.host_bytes_per_s = d.ceilings.host_bytes_per_s;
    c.source = fmt::format("measured by headroom device, run {}", kept->run);
    if (c.fp16_flops == 0) {
      c.fp16_flops = c.bf16_flops;
      c.source += "; fp16 taken as bf16";  // on a CPU both are widened tile by tile
    }
    return c;
  }
  return {};
}

}  // namespace headroom::studies
