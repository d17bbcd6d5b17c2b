#include "studies/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "base/host_memory.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "engine/model/decoder.h"
#include "engine/model/models.h"
#include "ops/attention/choose_dry.h"
#include "report/described_table.h"
#include "store/described_json.h"
#include "studies/memory/answer.h"
#include "studies/memory/inference.h"
#include "studies/memory/model_mitigations.h"
#include "studies/plan/picture.h"
#include "studies/plan/pytorch.h"
#include "studies/plan/search.h"
#include "studies/plan/ways.h"

namespace headroom::studies {

using engine::Recipe;

namespace {

// What the setting does, and the options that make it so.
std::string in_words(const Recipe& r) {
  std::vector<std::string> words{std::string(name_of(r.precision))}, options;
  if (attention::family_of(r.attention) != "flash") words.push_back(fmt::format("attention {}", r.attention));
  const engine::Keeping kept = r.kept_as();
  const bool all_kept = kept == engine::Keeping{};
  if (r.purpose != engine::Purpose::forward)
    words.emplace_back(all_kept ? "nothing recomputed" : r.host() > 0 ? "activations on the host" : "activations recomputed");
  if (r.micro_batches > 1) words.push_back(fmt::format("{} micro-batches of {}", r.micro_batches, r.batch));
  if (r.ranks.split_tokens) words.emplace_back("tokens split");
  if (!all_kept) options.push_back(fmt::format("--keep {}", engine::kept_in_words(r)));
  for (const auto& [lever, word] : engine::changed(r, {"precision", "attention", "keep"})) {
    std::string option = lever;
    std::replace(option.begin(), option.end(), '_', '-');
    options.push_back(fmt::format("--{} {}", option, word));
  }
  if (r.ranks.sharding != engine::Sharding::none) options.push_back(fmt::format("--shard {}", name_of(r.ranks.sharding)));
  return joined(words) + (options.empty() ? "" : fmt::format(" ({})", joined(options, " ")));
}

bool any_expected(const std::vector<PlanRow>& rows) {
  return std::any_of(rows.begin(), rows.end(), [](const PlanRow& r) { return r.ms.has_value(); });
}

// One GPU has nothing to shard and no link; a lever with one value for all rows says nothing.
Table table_of_settings(const char* title, const std::vector<PlanRow>& rows, bool several_gpus) {
  Table t = table_of<PlanRow>("rows", title, rows);
  const auto any = [&](auto&& is) { return std::any_of(rows.begin(), rows.end(), is); };
  for (Column& c : t.columns)
    if (!several_gpus && (c.name == "sharding" || c.name == "link_ms_at_least" || c.name == "exposed_ms")) c.show = Show::detail;
  if (!any_expected(rows)) t.show("ms", Show::detail);
  if (any([](const PlanRow& r) { return r.split_tokens; })) t.show("split_tokens", Show::always);
  if (any([](const PlanRow& r) { return r.phase != ModelUse::train; })) t.show("phase", Show::always);
  show_changed(t, rows);
  return t;
}

void check_plan(const Plan& p) {
  check_served(p.levers, p.device, p.use == ModelUse::inference ? RunBy::pytorch : RunBy::headroom);
  check(p.device.kind == DeviceKind::cuda || p.gpus == 1, Code::bad_argument,
        "--gpus {}: this is a CPU; name a GPU, present or not, as in --device h200", p.gpus);
  const std::string of_answers = changed_options(p.serving);
  check(p.use == ModelUse::inference || of_answers.empty(), Code::bad_argument, "{}: only with --phase inference; add it, or leave {} out",
        of_answers, of_answers);
  if (p.use == ModelUse::inference) check_levers_of_inference(p.levers, levers_to_try());
}

std::vector<Precision> usual_precisions(const Plan& p) {
  if (p.use == ModelUse::inference) return {p.device.kind == DeviceKind::cuda ? engine::usual_precision(p.device) : Precision{DType::bf16}};
  if (p.device.kind == DeviceKind::cpu) return {{DType::f32, Math::exact}, {DType::bf16, Math::exact}};
  return {{DType::f32, Math::exact}, {DType::f32, Math::tf32}, {DType::bf16, Math::exact}};
}

Outcome plan_of_inference(const Plan& p) {
  ModelMemory m;
  m.model = p.model;
  m.batches = {p.batch};
  m.lens = {p.len};
  m.levers.precision = p.levers.precision;
  m.levers.attention = {p.levers.attention.at(0)};
  m.memory_bytes = p.memory_bytes;
  m.ranks.count = p.gpus;
  m.serving = p.serving;
  m.device = p.device;
  m.workers = p.workers;
  return plan_inference(m);
}

std::string misfit_in_words(const Setting& s, const Room& room, std::uint64_t host) {
  if (room.holds(s.peak_bytes, s.host_bytes))
    return fmt::format("{} of host memory, where {} may be taken", bytes_in_words(double(s.host_bytes)), bytes_in_words(double(host)));
  const std::uint64_t needed = room.needed_bytes(s.peak_bytes, s.host_bytes);
  return fmt::format("{}, {} too many", bytes_in_words(double(needed)), bytes_in_words(double(needed - room.memory_bytes)));
}

// Every setting that was forecast, the fastest first, and those of them that fit.
struct Forecasts {
  Search search;
  Room room;
  std::uint64_t host;  // bytes that may be pinned there
  std::vector<const Setting*> fitting;
  const std::vector<Setting>& all() const { return search.all; }
  const Setting& fastest() const { return all().front(); }
  const Setting& nearest() const {
    return *std::min_element(all().begin(), all().end(), [](const Setting& a, const Setting& b) { return a.peak_bytes < b.peak_bytes; });
  }
  std::optional<double> slower(const Setting& s) const {  // sums in another order differ in their last bits
    if (search.by == By::flops || !std::isfinite(search.cost(s))) return {};
    const double share = search.cost(s) / search.cost(fastest()) - 1;
    return share > 1e-9 ? share : 0.0;
  }
};

Forecasts forecasts_of(const Plan& p) {
  Forecasts f{settings_of(p), room_of(p.device, p.memory_bytes, p.gpus), host_memory_for(p.device, p.gpus), {}};
  check(!f.all().empty(), Code::interrupted, "{} before a setting was forecast; what fits is not known", stopped_by());
  for (const Setting& s : f.all())
    if (f.room.holds(s.peak_bytes, s.host_bytes) && s.host_bytes <= f.host) f.fitting.push_back(&s);
  return f;
}

// The setting that the answer names: of those that fit and are as fast as the fastest (no time is known to a thousandth), one without copies to the
// host, then the smallest.
const Setting& named_of(const Forecasts& f) {
  const auto rank = [](const Setting& s) { return std::tuple(s.host_bytes > 0, s.peak_bytes); };
  const Setting* named = f.fitting.front();
  for (const Setting* s : f.fitting)
    if (f.search.by != By::flops && f.search.cost(*s) <= 1.001 * f.search.cost(*f.fitting.front()) && rank(*s) < rank(*named)) named = s;
  return *named;
}

// The answer in one line: with which setting it fits and how fast, or what is in the way and what would do.
std::string answer_of(const Plan& p, const Forecasts& f) {
  const auto words = [](std::uint64_t b) { return bytes_in_words(double(b)); };
  const Setting& s = f.fitting.empty() ? f.nearest() : named_of(f);
  if (f.fitting.empty() && !f.search.whole())
    return fmt::format("What fits is not known: stopped after {}, of which none fits on {}. The least needs {}, in {}.", f.search.how_far(),
                       p.device.name, words(f.room.needed_bytes(s.peak_bytes, s.host_bytes)), in_words(s.recipe));
  const std::string stopped = f.search.whole() ? "" : fmt::format(" Stopped after {}: a faster one may fit.", f.search.how_far());
  std::string answer =
      fmt::format("{}, in {}", fits_in_words(f.room, p.device, s.peak_bytes, {.host_bytes = s.host_bytes, .pinned_bytes = s.host_bytes}),
                  in_words(s.recipe));
  if (!f.fitting.empty()) {
    const double tokens = 1e3 * double(p.batch) * double(p.len);
    if (const auto& e = s.expected)
      return answer + fmt::format("; about {} tokens/s.", estimate_in_words(tokens / e->ms, tokens / e->high_ms, tokens / e->low_ms)) +
             stopped;
    return answer + (s.ms_at_least > 0 ? fmt::format("; at most {} tokens/s.", number_in_words(tokens / s.ms_at_least)) : ".") + stopped;
  }
  answer += fmt::format("{}. What it holds between steps takes {} of that.",
                        f.all().size() == 1 ? "" : fmt::format(", the least of {} settings", f.all().size()), words(s.standing_bytes));
  Recipe one = s.recipe;
  one.batch = 1, one.micro_batches = 1;
  if (const auto n = gpus_that_hold(one, p.device, p.memory_bytes))
    answer += fmt::format(" It takes {} such GPUs: --gpus {} --batch {}.", *n, *n, *n);
  if (p.device.kind == DeviceKind::cuda && p.use == ModelUse::train)
    answer += " What fine-tuning with PyTorch needs (LoRA, 8 bits, 4 bits): --as pytorch.";
  return answer;
}

// What was asked, how many settings fit, and what is said of the account.
Record head_of(const Plan& p, const Forecasts& f) {
  Record r{"", answer_of(p, f), {}};
  const auto note = [&](const std::string& words) {
    if (!words.empty()) r.add(Part{Note{words}});
  };
  note(fmt::format("{} batch {} len {} in {} on {}{}", p.model.name, p.batch, p.len, bytes_in_words(double(f.room.memory_bytes)),
                   p.gpus > 1 ? fmt::format("each of {} × ", p.gpus) : "", p.device.name));
  const bool known = !f.fitting.empty() || f.search.whole();  // a search that was stopped before anything fitted knows nothing
  r.add("fits", known ? Value(!f.fitting.empty()) : Value()).add("memory_bytes", std::int64_t(f.room.memory_bytes), Unit::bytes);
  r.add("overhead_bytes", std::int64_t(f.room.overhead_bytes), Unit::bytes);
  r.add("settings", std::int64_t(f.all().size())).add("settings_that_fit", std::int64_t(f.fitting.size()));
  note(engine::preset_in_words(p.model));
  note(engine::why_not_trained(p.model));
  for (const std::string& what : p.model.not_counted) note(fmt::format("Not in the account: {}.", what));
  note(engine::past_its_positions(p.model, p.len));
  note(f.room.words);
  std::vector<Recipe> recipes;
  for (const Setting& s : f.all()) recipes.push_back(s.recipe);
  note(engine::counted_by(recipes, p.device));
  note(engine::in_words_of_fp8(recipes, p.device));
  if (const std::string why = host_left_out(p); !why.empty()) note(fmt::format("{}; left out.", why));
  for (const Precision precision : p.levers.precision)
    if (f.search.whole()) note(left_out(p, precision, f.all()));
  if (f.fitting.empty() && f.room.holds(f.nearest().peak_bytes, f.nearest().host_bytes))
    note(fmt::format("Nothing fits. The nearest needs {}.", misfit_in_words(f.nearest(), f.room, f.host)));
  return r;
}

PlanRow row_of(const Plan& p, const Forecasts& f, const Setting& s) {
  const Recipe& recipe = s.recipe;
  PlanRow row{.phase = p.use,
              .levers = recipe.levers(),
              .micro_batch = recipe.batch,
              .micro_batches = recipe.micro_batches,
              .sharding = recipe.ranks.sharding,
              .split_tokens = recipe.ranks.split_tokens,
              .needed_bytes = f.room.needed_bytes(s.peak_bytes, s.host_bytes),
              .peak_bytes = s.peak_bytes,
              .saves_bytes = std::int64_t(f.fastest().peak_bytes) - std::int64_t(s.peak_bytes),
              .standing_bytes = s.standing_bytes,
              .saved_bytes = s.saved_bytes,
              .parameter_bytes = s.parameter_bytes,
              .gradient_bytes = s.gradient_bytes,
              .optimizer_bytes = s.optimizer_bytes,
              .flops = s.flops,
              .traffic_bytes = s.traffic,
              .link_bytes = s.link_bytes,
              .gpus = p.gpus,
              .host_bytes = s.host_bytes};
  row.levers.keep = recipe.kept_as();
  row.slower = f.slower(s);
  row.ms_by = s.expected ? s.expected->by : s.why_no_ms;
  if (s.expected) row.ms = s.expected->ms, row.ms_low = s.expected->low_ms, row.ms_high = s.expected->high_ms;
  if (s.ms_at_least <= 0) return row;
  row.ms_at_least = s.ms_at_least, row.link_ms_at_least = s.link_ms_at_least, row.exposed_ms = s.exposed_ms;
  row.tokens_per_s_at_most = 1e3 * double(p.batch) * double(p.len) / s.ms_at_least;
  return row;
}

std::vector<PlanRow> rows_of(const Plan& p, const Forecasts& f, const std::vector<const Setting*>& shown) {
  std::vector<PlanRow> rows;
  std::size_t least = std::numeric_limits<std::size_t>::max();  // the least of those as fast, or faster
  for (const Setting* s : shown) {
    rows.push_back(row_of(p, f, *s));
    rows.back().frontier = s->peak_bytes < least;
    least = std::min(least, s->peak_bytes);
  }
  return rows;
}

void add_notes_of_time(Record& r, const Plan& p, const Forecasts& f) {
  const bool bound = std::ranges::all_of(f.all(), [](const Setting&s) { return s.ms_at_least > 0; }), expected = f.search.by == By::ms;
  r.add(Part{Note{bound ? fmt::format("ms_at_least is a lower bound: every op at its ceiling ({}){}, nothing overlapped.{}",
                                      p.device.ceilings.source, expected ? " or its expected time, whichever is less" : "",
                                      expected ? "" : " Expect 1.2 to 3 times as long.")
                        : "A required ceiling is unknown for this device, so settings are ordered by FLOPs, not by time."}});
  if (expected)
    r.add(Part{Note{
        "ms is expected, from steps that were measured; ms_low and ms_high are its interval, and ms_by says what is behind it, where that "
        "is more than this card's own steps (in csv and json). The order, slower and the picture go by ms; settings without it come "
        "last."}});
}

void add_several_gpus(Record& r, const Plan& p, const Forecasts& f) {
  const double link = p.device.ceilings.link_bytes_per_s;
  const bool runs = p.model.trained() && p.use == ModelUse::train;
  r.add(Part{Note{fmt::format(
      "Bytes, times and FLOPs are of one of the {} GPUs, from the same dry walk with its part of the store. link_ms_at_least is what it "
      "sends, at {}; of that the step waits for exposed_ms. Sharding: none replicates, optimizer is ZeRO-1, gradients ZeRO-2, everything "
      "ZeRO-3 (FSDP).{}",
      p.gpus, link > 0 ? fmt::format("{:.0f} GB/s", link / 1e9) : "an unknown rate",
      runs ? fmt::format(" Each row runs: headroom train --gpus {} with its options, and --batch its micro_batch.", p.gpus) : "")}});
  if (const std::string hosts = hosts_in_words(p.device, p.gpus, p.per_host, p.link); !hosts.empty()) r.add(Part{Note{hosts}});
  if (!f.search.whole()) return;
  for (Part& part : ways_of(p, f.all(), f.room)) r.add(std::move(part));
}

Outcome plan_of_training(const Plan& p) {
  const Forecasts f = forecasts_of(p);
  Record r = head_of(p, f);
  const bool fits = !f.fitting.empty();
  const std::vector<const Setting*> shown = fits ? f.fitting : std::vector<const Setting*>{&f.nearest()};
  std::vector<PlanRow> rows = rows_of(p, f, shown);
  auto picture = picture_of(rows, f.room.memory_bytes);
  if (std::int64_t(rows.size()) > p.most) rows.resize(std::size_t(p.most));
  const bool on_host = std::any_of(rows.begin(), rows.end(), [](const PlanRow& row) { return row.host_bytes > 0; });
  Table settings =
      table_of_settings(!fits ? "The nearest"
                        : f.search.by != By::flops
                            ? "What fits, fastest first; saves_bytes and slower compare with the fastest setting, which may not fit"
                            : "What fits, fewest FLOPs first; saves_bytes compares with the setting of fewest FLOPs, which may not fit",
                        rows, p.gpus > 1);
  if (on_host) settings.show("host_bytes", Show::always);
  r.add(Part{std::move(settings)});
  if (on_host)
    r.add(Part{Note{fmt::format(
        "host_bytes is pinned memory of the host, which holds what blocks keep for backward; it is copied at {:.0f} GB/s each way.",
        p.device.ceilings.host_bytes_per_s / 1e9)}});
  if (picture) r.add(Part{*std::move(picture)});
  r.add(
      Part{Note{"needed_bytes is the peak and what is allocated beside it. frontier: no other setting that fits is as fast and smaller. "
                "Gradients half and none are rounded to the precision. With update during, gradients are not clipped."}});
  add_notes_of_time(r, p, f);
  const bool levels_asked = std::any_of(p.levers.keep.begin(), p.levers.keep.end(), [](const auto& k) { return !k.found(); });
  if (!levels_asked && p.model.trained() && shown.front()->recipe.keep.first() != engine::Keep::everything)
    r.add(Part{Note{"--keep auto chooses a level for each block, so its bytes and time can be between those of two rows."}});
  if (p.gpus > 1) add_several_gpus(r, p, f);
  if (f.search.whole()) return yes_or_no(std::move(r), fits);
  return {std::move(r), Answer::failed, {}, fmt::format("headroom plan: {} after {}", stopped_by(), f.search.how_far()), true};
}

Plan checked(Plan p) {
  if (p.levers.precision.empty()) p.levers.precision = usual_precisions(p);
  check_plan(p);
  p.device = among_hosts(p.device, p.gpus, p.per_host, p.link);
  return p;
}

}  // namespace

void check(const Plan& asked) {
  const Plan p = checked(asked);
  if (p.use != ModelUse::inference) recipes_or_why_none(p);
}

Outcome plan(const Plan& asked) {
  if (asked.whose == Whose::pytorch) return plan_as_pytorch(asked);
  const Plan p = checked(asked);
  return p.use == ModelUse::inference ? plan_of_inference(p) : plan_of_training(p);
}

}  // namespace headroom::studies
