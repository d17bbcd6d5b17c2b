#include "studies/plan.h"

#include <algorithm>

#include "base/text.h"
#include "studies/driver_bytes.h"

namespace headroom {

using engine::Keep;

namespace {

Setting setting_of(const Plan& p, engine::Recipe recipe) {
  Setting s;
  s.micro_batches = p.batch / p.gpus / recipe.batch;
  recipe.micro_batches = int(s.micro_batches);
  const engine::Forecast f = engine::forecast(recipe, p.device, p.workers);
  s.peak_bytes = f.peak_bytes, s.standing_bytes = f.standing_bytes, s.saved_bytes = f.bytes_at_peak(Phase::saved);
  s.parameter_bytes = f.bytes_at_peak(Phase::parameter), s.gradient_bytes = f.bytes_at_peak(Phase::gradient);
  s.optimizer_bytes = f.bytes_at_peak(Phase::optimizer);
  for (const Step& op : f.walk.steps) {
    const double times = op.phase == Phase::optimizer ? 1 : double(s.micro_batches);
    s.flops += times * op.cost.flops, s.traffic += times * op.cost.bytes, s.link_bytes += times * op.cost.link_bytes;
    if (f.ms > 0) s.ms += times * engine::roofline_ms(op, recipe.precision, p.device.ceilings);
    if (f.ms > 0 && op.cost.link_bytes > 0) s.link_ms += times * engine::roofline_ms(op, recipe.precision, p.device.ceilings);
  }
  s.recipe = std::move(recipe);
  return s;
}

std::string in_words(const Setting& s) {
  return fmt::format("{} attention {} keep {} micro-batch {} × {}{}", name_of(s.recipe.precision), s.recipe.attention,
                     name_of(s.recipe.keep[0]), s.recipe.batch, s.micro_batches,
                     s.recipe.ranks.count > 1 ? fmt::format(" sharding {}", name_of(s.recipe.ranks.sharding)) : "");
}

}  // namespace

std::vector<Setting> settings_of(const Plan& p) {
  check(p.gpus >= 1 && p.batch % p.gpus == 0, Code::bad_argument,
        "--batch {} is of all GPUs together and cannot be shared out to {}; make it a multiple", p.batch, p.gpus);
  const std::int64_t each = p.batch / p.gpus;
  std::vector<Setting> all;
  for (const Precision precision : p.precisions)
    for (const std::string& attention : p.attentions)
      for (int keep = 0; keep < int(engine::keep_names.size()); ++keep)
        for (std::int64_t micro = each; micro >= 1; --micro)
          for (int sharding = 0; each % micro == 0 && sharding < (p.gpus > 1 ? int(engine::sharding_names.size()) : 1); ++sharding) {
            engine::Recipe r{p.model, micro, p.len, precision, {Keep(keep)}, attention};
            r.ranks = {p.gpus, engine::Sharding(sharding)};
            all.push_back(setting_of(p, std::move(r)));
          }
  const bool timed = std::all_of(all.begin(), all.end(), [](const Setting& s) { return s.ms > 0; });  // times and FLOPs cannot be compared
  std::stable_sort(all.begin(), all.end(), [timed](const Setting& a, const Setting& b) {
    const double ta = timed ? a.ms : a.flops, tb = timed ? b.ms : b.flops;
    return ta != tb ? ta < tb : a.peak_bytes < b.peak_bytes;
  });
  return all;
}

Planned plan(const Plan& p) {
  const auto all = settings_of(p);
  check(!all.empty(), Code::bad_argument, "no precision or no attention to choose from");
  const bool all_timed = std::all_of(all.begin(), all.end(), [](const Setting& s) { return s.ms > 0; });
  std::vector<Setting> fitting;
  for (const Setting& s : all)
    if (s.peak_bytes <= p.memory_bytes) fitting.push_back(s);
  const bool fits = !fitting.empty();
  const Setting nearest =
      *std::min_element(all.begin(), all.end(), [](const Setting& a, const Setting& b) { return a.peak_bytes < b.peak_bytes; });

  Record r{"",
           fmt::format("{} batch {} len {} in {} on {}{}", p.model.name, p.batch, p.len, bytes_in_words(double(p.memory_bytes)),
                       p.gpus > 1 ? fmt::format("each of {} × ", p.gpus) : "", p.device.name),
           {}};
  r.add("fits", fits).add("memory_bytes", std::int64_t(p.memory_bytes), Unit::bytes).add("settings", std::int64_t(all.size()));
  r.add("settings_that_fit", std::int64_t(fitting.size()));
  for (const std::string& what : p.model.left_out) r.add(Part{Note{fmt::format("Not in the account: {}.", what)}});
  std::vector<engine::Recipe> recipes;
  for (const Setting& s : all) recipes.push_back(s.recipe);
  if (const std::string who = engine::counted_by(recipes, p.device); !who.empty()) r.add(Part{Note{who}});
  if (!fits)
    r.add(Part{Note{fmt::format("Nothing fits. The nearest needs {}, {} too many: {}.", bytes_in_words(double(nearest.peak_bytes)),
                                bytes_in_words(double(nearest.peak_bytes - p.memory_bytes)), in_words(nearest))}});
  const std::int64_t overhead = known_overhead_bytes(p.device);
  Table t{"rows",
          fits ? fmt::format("What fits, {}; saves and costs against the first of all, fitting or not",
                             all_timed ? "fastest first" : "fewest FLOPs first")
               : "The nearest",
          {{"precision"},
           {"attention"},
           {"keep"},
           {"micro_batch"},
           {"micro_batches"},
           {"sharding", Unit::none, p.gpus > 1 ? Show::always : Show::detail},
           {"status", Unit::none, p.gpus > 1 ? Show::always : Show::detail},
           {"peak_bytes", Unit::bytes, Show::bar},
           {"driver_bytes", Unit::bytes, overhead > 0 ? Show::always : Show::detail},
           {"standing_bytes", Unit::bytes},
           {"saved_bytes", Unit::bytes},
           {"parameter_bytes", Unit::bytes, Show::detail},
           {"gradient_bytes", Unit::bytes, Show::detail},
           {"optimizer_bytes", Unit::bytes, Show::detail},
           {"ms", Unit::ms},
           {"link_ms", Unit::ms, p.gpus > 1 ? Show::always : Show::detail},
           {"tokens_per_s"},
           {"saves_bytes", Unit::bytes},
           {"costs_ms", Unit::ms},
           {"flops", Unit::flops, Show::detail},
           {"traffic_bytes", Unit::bytes, Show::detail},
           {"link_bytes", Unit::bytes, Show::detail},
           {"gpus", Unit::none, Show::detail}},
          {}};
  const auto in_all = [&](const Setting& s) {  // where the overhead is known: what the driver will say is taken
    return overhead > 0 ? Value(std::int64_t(s.peak_bytes) + overhead) : Value();
  };
  const Setting& fastest = all.front();
  if (!fits) fitting = {nearest};
  const auto slower = [&](const Setting& s) {  // sums in another order differ in their last bits
    return s.ms - fastest.ms > 1e-9 * s.ms ? s.ms - fastest.ms : 0.0;
  };
  for (std::size_t i = 0; i < std::min(fitting.size(), p.most); ++i) {
    const Setting& s = fitting[i];
    const bool timed = s.ms > 0;
    t.add({std::string(name_of(s.recipe.precision)),
           s.recipe.attention,
           std::string(name_of(s.recipe.keep[0])),
           s.recipe.batch,
           s.micro_batches,
           std::string(name_of(s.recipe.ranks.sharding)),
           std::string(p.gpus > 1 ? "forecast only" : "ok"),
           std::int64_t(s.peak_bytes),
           in_all(s),
           std::int64_t(s.standing_bytes),
           std::int64_t(s.saved_bytes),
           std::int64_t(s.parameter_bytes),
           std::int64_t(s.gradient_bytes),
           std::int64_t(s.optimizer_bytes),
           timed ? Value(s.ms) : Value(),
           timed ? Value(s.link_ms) : Value(),
           timed ? Value(1e3 * double(p.batch) * double(p.len) / s.ms) : Value(),
           std::int64_t(fastest.peak_bytes) - std::int64_t(s.peak_bytes),
           all_timed ? Value(slower(s)) : Value(),
           s.flops,
           s.traffic,
           s.link_bytes,
           std::int64_t(p.gpus)});
  }
  r.add(Part{t});
  r.add(Part{
      Note{all_timed ? fmt::format("Times are a roofline's: each op at its ceiling ({}), none beside another.", p.device.ceilings.source)
                     : "Not every ceiling that is needed is known for this device, so settings are ordered by their FLOPs, not by time."}});
  if (p.gpus > 1)
    r.add(Part{Note{fmt::format(
        "Forecast only: in this version a step runs on one device. Bytes, times and FLOPs are of one of the {} GPUs, from the same dry "
        "walk "
        "with its shard of the store; link_ms is what rings send at {}, beside nothing else. Sharding: none replicates, optimizer is "
        "ZeRO-1, gradients ZeRO-2, everything ZeRO-3 (FSDP).",
        p.gpus,
        p.device.ceilings.link_bytes_per_s > 0 ? fmt::format("{:.0f} GB/s", p.device.ceilings.link_bytes_per_s / 1e9)
                                               : "an unknown rate")}});
  return {r, fits};
}

}  // namespace headroom
