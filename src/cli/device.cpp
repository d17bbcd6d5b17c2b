// headroom device — what this machine is, and how fast it copies and multiplies.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "gpu/clocks.h"
#include "store/results.h"
#include "studies/ceilings.h"

namespace headroom::cli {

namespace {

Record described(const Device& d) {
  Record r{"device", d.name, {}};
  r.add("name", d.name).add("kind", std::string(d.kind == DeviceKind::cpu ? "cpu" : "cuda")).add("units", std::int64_t(d.units));
  if (!d.driver.empty()) r.add("driver", d.driver).add("sm", std::int64_t(d.sm));
  r.add("memory_bytes", std::int64_t(d.total_bytes), Unit::bytes);
  return r.add("available_bytes", std::int64_t(d.memory_bytes), Unit::bytes);
}

Table known() {
  const auto rate = [](double x) { return x > 0 ? Value(x) : Value(); };
  Table t{"known",
          "Machines known by name",
          {{"key"},
           {"name"},
           {"memory_bytes", Unit::bytes},
           {"copy", Unit::bytes_per_s},
           {"fp32", Unit::flops},
           {"tf32", Unit::flops},
           {"bf16", Unit::flops},
           {"fp8", Unit::flops},
           {"source"}},
          {}};
  for (const Device& d : known_devices())
    t.add({d.key, d.name, std::int64_t(d.memory_bytes), rate(d.ceilings.copy_bytes_per_s), rate(d.ceilings.fp32_flops),
           rate(d.ceilings.tf32_flops), rate(d.ceilings.bf16_flops), rate(d.ceilings.fp8_flops), d.ceilings.source});
  return t;
}

Record clocks_in_words(const Clocks& c) {
  Record r{"clocks", "Clocks now", {}};
  r.add("driver", c.driver).add("sm_mhz", std::int64_t(c.sm_mhz)).add("most_sm_mhz", std::int64_t(c.most_sm_mhz));
  r.add("celsius", std::int64_t(c.celsius)).add("watts", c.watts).add("most_watts", c.most_watts);
  return r.add("held_back", joined(c.held_back));
}

// Measures the ceilings, keeps each row in the store, and shows them.
void add_measured(const Device& d, const Common& common, Record& into) {
  Results results(common.db.empty() ? default_results_file() : common.db, Results::Access::write);
  const bench::Protocol protocol{.warmup = 2, .steps = 50, .seconds = 1};
  const auto run = results.start_run("device", nlohmann::json{{"steps", protocol.steps}, {"seconds", protocol.seconds}}.dump(), d.name);
  const auto measured = studies::measure_ceilings(d, protocol, interrupted);
  const bool gpu = d.kind == DeviceKind::cuda;
  const Show on_gpu = gpu ? Show::always : Show::detail;
  Table t{"ceilings",
          fmt::format("Measured: {}", measured.how),
          {{"what"},
           {"dtype"},
           {"size"},
           {"copy_bytes_per_s", Unit::bytes_per_s},
           {"flops_per_s", Unit::flops},
           {"mean_ms", Unit::ms},
           {"std_ms", Unit::ms},
           {"steps"},
           {"sm_mhz", Unit::none, on_gpu},
           {"held_back", Unit::none, on_gpu}},
          {}};
  const auto known = [](double x) { return x > 0 ? Value(x) : Value(); };
  for (const auto& r : measured.rows) {
    t.add({r.what, r.dtype, r.size, known(r.copy_bytes_per_s), known(r.flops), r.ms.mean, r.ms.std, std::int64_t(r.ms.count),
           r.sm_mhz ? Value(std::int64_t(r.sm_mhz)) : Value(), r.held_back});
    const nlohmann::ordered_json row{
        {"what", r.what},         {"dtype", r.dtype},        {"size", r.size},          {"copy_bytes_per_s", r.copy_bytes_per_s},
        {"flops_per_s", r.flops}, {"time_ms", r.ms.mean},    {"time_ms_std", r.ms.std}, {"steps", r.ms.count},
        {"sm_mhz", r.sm_mhz},     {"held_back", r.held_back}};
    results.add_row(run, {nlohmann::json{r.what, r.dtype, r.size}.dump(), row.dump(), "{}"});
  }
  if (!interrupted()) results.finish_run(run);
  into.add(Part{std::move(t)});
  if (!gpu) return;
  into.add(Part{Note{std::string("Timed by ") + studies::gpu_timing + "."}});
  const auto after = clocks_of(d);
  for (const auto& r : measured.rows)
    if (after && r.sm_mhz > 0 && r.sm_mhz < after->most_sm_mhz && !r.held_back.empty())
      into.add(Part{Note{fmt::format("{} {} {}: the card ran at {} of {} MHz, held back by its {}.", r.what, r.dtype, r.size, r.sm_mhz,
                                     after->most_sm_mhz, r.held_back)}});
}

}  // namespace

Run device(CLI::App& app, Common& common) {
  struct Asked {
    bool skip = false, known = false;
  };
  auto asked = std::make_shared<Asked>();
  add_flag(app, "--no-measure", asked->skip, "Only say what is here");
  add_flag(app, "--known", asked->known, "List the machines that plans may be made for");
  app.footer("Examples:\n  headroom device\n  headroom device --known\n  headroom device --no-measure --format json");
  return [asked, &common] {
    if (asked->known) return deliver(Record{"", "", {}}.add(Part{known()}), common);
    const Device d = chosen_device(common);
    Record r{"", "", {}};
    r.add(Part{described(d)});
    if (const auto clocks = clocks_of(d)) r.add(Part{clocks_in_words(*clocks)});
    if (!asked->skip) add_measured(d, common, r);
    return deliver(r, common);
  };
}

}  // namespace headroom::cli
