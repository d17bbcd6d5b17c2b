#include "studies/plan/plan.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/interrupt.h"
#include "base/text.h"
#include "base/threads.h"
#include "engine/decoder.h"
#include "report/described_table.h"
#include "studies/memory/inference.h"

namespace headroom::studies {

using engine::Recipe;

namespace {

Setting setting_of(const Plan& p, const Recipe& recipe) {
  Setting s;
  const engine::Forecast f = engine::forecast(recipe, p.device, p.workers);
  s.peak_bytes = f.peak_bytes, s.standing_bytes = f.standing_bytes, s.saved_bytes = f.bytes_at_peak(Phase::saved);
  s.stand_in_bytes = engine::stand_in_bytes(recipe, p.device);
  s.parameter_bytes = f.bytes_at_peak(Phase::parameter), s.gradient_bytes = f.bytes_at_peak(Phase::gradient);
  s.optimizer_bytes = f.bytes_at_peak(Phase::optimizer);
  s.flops = f.flops;
  s.traffic = f.bytes;
  s.link_bytes = f.link_bytes;
  s.ms_at_least = f.ms;
  s.link_ms_at_least = f.link_ms;
  s.recipe = recipe;
  return s;
}

bool accepted(const Recipe& r) {
  try {
    engine::check(r);
    return true;
  } catch (const Error&) { return false; }
}

// Every combination of levers that the engine accepts. One micro-batch's size divides a GPU's share of the batch.
std::vector<Recipe> recipes_of(const Plan& p) {
  const std::int64_t each = p.batch / p.gpus;
  std::vector<Recipe> all;
  for (const Precision precision : p.precisions)
    for (const std::string& attention : p.attentions)
      for (const engine::Keep keep : p.keeps)
        for (std::int64_t micro = each; micro >= 1; --micro) {
          if (each % micro != 0) continue;
          for (const engine::Masters masters : p.masters)
            for (const engine::Gradients gradients : p.gradients)
              for (const engine::Updating updating : p.updates)
                for (int sharding = 0; sharding < (p.gpus > 1 ? int(names_of<engine::Sharding>.name.size()) : 1); ++sharding) {
                  Recipe r{p.model, micro, p.len, precision, {keep}, attention};
                  r.micro_batches = int(each / micro);
                  if (r.formats().quantised()) r.scales = p.scales;
                  r.holding = {.masters = masters, .updating = updating, .gradients = gradients};
                  r.ranks = {p.gpus, engine::Sharding(sharding)};
                  if (accepted(r)) all.push_back(std::move(r));
                }
        }
  return all;
}

std::string in_words(const Recipe& r) {
  const engine::Holding& h = r.holding;
  std::string words = fmt::format("{} attention {} keep {} micro-batch {} × {}", name_of(r.precision), r.attention, name_of(r.keep[0]),
                                  r.batch, r.micro_batches);
  if (h.masters != engine::Masters::whole) words += fmt::format(" masters {}", name_of(h.masters));
  if (h.gradients != engine::Gradients::whole) words += fmt::format(" gradients {}", name_of(h.gradients));
  if (h.updating != engine::Updating::after) words += fmt::format(" update {}", name_of(h.updating));
  if (r.ranks.count > 1) words += fmt::format(" sharding {}", name_of(r.ranks.sharding));
  return words;
}

// The forecasts, shared out to every core: each is a dry run of its own. A recipe that no kernel serves is left out.
std::vector<Setting> forecasts_of(const Plan& p, const std::vector<Recipe>& recipes) {
  std::vector<std::optional<Setting>> found(recipes.size());
  Threads threads;
  threads.share(std::int64_t(recipes.size()), [&](std::int64_t i, int) {
    if (p.stop()) return;
    try {
      found[std::size_t(i)] = setting_of(p, recipes[std::size_t(i)]);
    } catch (const Error& e) {
      if (e.at.code != Code::unsupported) throw;
    }
  });
  std::vector<Setting> all;
  for (auto& s : found)
    if (s) all.push_back(std::move(*s));
  return all;
}

// One GPU has nothing to shard and no link.
Table table_of_settings(const char* title, const std::vector<PlanRow>& rows, bool several_gpus) {
  Table t = table_of<PlanRow>("rows", title, rows);
  for (Column& c : t.columns)
    if (!several_gpus && (c.name == "sharding" || c.name == "link_ms_at_least")) c.show = Show::detail;
  return t;
}

}  // namespace

std::vector<Setting> settings_of(const Plan& p) {
  check(p.gpus >= 1 && p.batch % p.gpus == 0, Code::bad_argument,
        "--batch {} is of all GPUs together and cannot be shared out to {}; make it a multiple", p.batch, p.gpus);
  const auto recipes = recipes_of(p);
  if (recipes.empty()) {  // the engine's own reason, of the plainest combination
    check(!p.precisions.empty() && !p.attentions.empty() && !p.keeps.empty() && !p.masters.empty() && !p.gradients.empty() &&
              !p.updates.empty(),
          Code::bad_argument, "plan: nothing to choose from");
    Recipe r{p.model, p.batch / p.gpus, p.len, p.precisions[0], {p.keeps[0]}, p.attentions[0]};
    r.holding = {.masters = p.masters[0], .updating = p.updates[0], .gradients = p.gradients[0]}, r.ranks.count = p.gpus;
    engine::check(r);
  }
  auto all = forecasts_of(p, recipes);
  if (all.empty() && !(p.stop())) engine::forecast(recipes[0], p.device, p.workers);  // says why it is not served
  const bool timed =
      std::all_of(all.begin(), all.end(), [](const Setting& s) { return s.ms_at_least > 0; });  // times and FLOPs cannot be compared
  std::stable_sort(all.begin(), all.end(), [timed](const Setting& a, const Setting& b) {
    const double ta = timed ? a.ms_at_least : a.flops, tb = timed ? b.ms_at_least : b.flops;
    return ta != tb ? ta < tb : a.peak() < b.peak();
  });
  return all;
}

namespace {

void check_plan(const Plan& p) {
  check_precisions(p.precisions, p.scales, p.device);
  check(p.device.kind == DeviceKind::cuda || p.gpus == 1, Code::bad_argument,
        "--gpus {}: this is a CPU; name a GPU, present or not, as in --device h200", p.gpus);
  check(p.use == ModelUse::train || p.gpus == 1, Code::bad_argument, "--phase inference is of one device; leave --gpus out");
}

std::vector<Precision> usual_precisions(const Plan& p) {
  if (p.use == ModelUse::inference) return {{DType::bf16, Math::exact}};
  if (p.device.kind == DeviceKind::cpu) return {{DType::f32, Math::exact}, {DType::bf16, Math::exact}};
  return {{DType::f32, Math::exact}, {DType::f32, Math::tf32}, {DType::bf16, Math::exact}};
}

Outcome plan_of_inference(const Plan& p) {
  ModelMemory m;
  m.model = p.model;
  m.batches = {p.batch};
  m.lens = {p.len};
  m.precisions = p.precisions;
  m.attention = p.attentions.at(0);
  m.memory_bytes = p.memory_bytes;
  m.device = p.device;
  m.workers = p.workers;
  return plan_inference(m);
}

Outcome plan_of_training(const Plan& p) {
  const auto all = settings_of(p);
  check(!p.stop(), Code::interrupted, "{} before every setting was forecast; what fits is not known", stopped_by());
  const bool all_timed = std::all_of(all.begin(), all.end(), [](const Setting& s) { return s.ms_at_least > 0; });
  const Room room = room_of(p.device, p.memory_bytes, p.gpus);
  std::vector<const Setting*> fitting;
  for (const Setting& s : all)
    if (room.holds(s.peak())) fitting.push_back(&s);
  const bool fits = !fitting.empty();
  const Setting& nearest =
      *std::min_element(all.begin(), all.end(), [](const Setting& a, const Setting& b) { return a.peak() < b.peak(); });

  Record r{"",
           fmt::format("{} batch {} len {} in {} on {}{}", p.model.name, p.batch, p.len, bytes_in_words(double(room.memory_bytes)),
                       p.gpus > 1 ? fmt::format("each of {} × ", p.gpus) : "", p.device.name),
           {}};
  r.add("fits", fits).add("memory_bytes", std::int64_t(room.memory_bytes), Unit::bytes);
  r.add("overhead_bytes", std::int64_t(room.overhead_bytes), Unit::bytes);
  r.add("settings", std::int64_t(all.size())).add("settings_that_fit", std::int64_t(fitting.size()));
  if (p.model.counted) r.add(Part{Note{fmt::format("Counted, not trained here: this engine has no {}.", p.model.counted->untrained)}});
  for (const std::string& what : p.model.left_out) r.add(Part{Note{fmt::format("Not in the account: {}.", what)}});
  if (!room.words.empty()) r.add(Part{Note{room.words}});
  std::vector<Recipe> recipes;
  for (const Setting& s : all) recipes.push_back(s.recipe);
  if (const std::string who = engine::counted_by(recipes, p.device); !who.empty()) r.add(Part{Note{who}});
  if (const std::string said = engine::in_words_of_fp8(recipes, p.device); !said.empty()) r.add(Part{Note{said}});
  if (!fits)
    r.add(Part{
        Note{fmt::format("Nothing fits. The nearest needs {}, {} too many: {}.", bytes_in_words(double(room.needed_bytes(nearest.peak()))),
                         bytes_in_words(double(room.needed_bytes(nearest.peak()) - room.memory_bytes)), in_words(nearest.recipe))}});
  if (!fits) fitting = {&nearest};
  const Setting& fastest = all.front();
  const auto slower = [&](const Setting& s) {  // sums in another order differ in their last bits
    const double share = s.ms_at_least / fastest.ms_at_least - 1;
    return share > 1e-9 ? share : 0.0;
  };
  std::vector<PlanRow> rows;
  std::size_t least = std::numeric_limits<std::size_t>::max();  // of those as fast, or faster
  for (const Setting* s : fitting) {
    const bool frontier = s->peak() < least;
    least = std::min(least, s->peak());
    if (std::int64_t(rows.size()) == p.most) break;
    const Recipe& recipe = s->recipe;
    rows.push_back({.precision = recipe.precision,
                    .attention = recipe.attention,
                    .keep = recipe.keep[0],
                    .holding = recipe.holding,
                    .micro_batch = recipe.batch,
                    .micro_batches = recipe.micro_batches,
                    .sharding = recipe.ranks.sharding,
                    .needed_bytes = room.needed_bytes(s->peak()),
                    .peak_bytes = s->peak_bytes,
                    .saves_bytes = std::int64_t(fastest.peak()) - std::int64_t(s->peak()),
                    .frontier = frontier,
                    .standing_bytes = s->standing_bytes,
                    .saved_bytes = s->saved_bytes,
                    .parameter_bytes = s->parameter_bytes,
                    .gradient_bytes = s->gradient_bytes,
                    .optimizer_bytes = s->optimizer_bytes,
                    .flops = s->flops,
                    .traffic_bytes = s->traffic,
                    .link_bytes = s->link_bytes,
                    .gpus = p.gpus});
    PlanRow& row = rows.back();
    if (all_timed) row.slower = slower(*s);
    if (s->ms_at_least <= 0) continue;
    row.ms_at_least = s->ms_at_least, row.link_ms_at_least = s->link_ms_at_least;
    row.tokens_per_s_at_most = 1e3 * double(p.batch) * double(p.len) / s->ms_at_least;
  }
  r.add(Part{table_of_settings(!fits       ? "The nearest"
                               : all_timed ? "What fits, fastest first; saves and slower against the first of all, fitting or not"
                                           : "What fits, fewest FLOPs first; saves against the first of all, fitting or not",
                               rows, p.gpus > 1)});
  r.add(Part{
      Note{"needed is the peak and what is allocated beside it. frontier: no other setting that fits is as fast and smaller. Gradients "
           "half and none are rounded to the precision; with update during nothing is clipped."}});
  r.add(Part{Note{all_timed ? fmt::format("ms_at_least is a lower bound: every op at its ceiling ({}), nothing overlapped. Expect 1.2 to 3 "
                                          "times as long.",
                                          p.device.ceilings.source)
                            : "A required ceiling is unknown for this device, so settings are ordered by FLOPs, not by time."}});
  if (p.gpus > 1)
    r.add(Part{Note{fmt::format(
        "Bytes, times and FLOPs are of one of the {} GPUs, from the same dry walk with its part of the store; link_ms_at_least is what it "
        "sends at {}, some of it beside other work. Sharding: none replicates, optimizer is ZeRO-1, gradients ZeRO-2, everything ZeRO-3 "
        "(FSDP).",
        p.gpus,
        p.device.ceilings.link_bytes_per_s > 0 ? fmt::format("{:.0f} GB/s", p.device.ceilings.link_bytes_per_s / 1e9)
                                               : "an unknown rate")}});
  return yes_or_no(std::move(r), fits);
}

}  // namespace

Outcome plan(const Plan& asked) {
  Plan p = asked;
  if (p.precisions.empty()) p.precisions = usual_precisions(p);
  check_plan(p);
  return p.use == ModelUse::inference ? plan_of_inference(p) : plan_of_training(p);
}

}  // namespace headroom::studies
