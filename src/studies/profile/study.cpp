#include "studies/profile/study.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "base/threads.h"
#include "report/render.h"
#include "studies/memory/room.h"

namespace headroom::studies {

namespace {

template <class T>
const T& only(const std::vector<T>& list, const char* option) {
  check(list.size() == 1, Code::bad_argument, "{}: a profile takes one value; {} were given", option, list.size());
  return list.front();
}

attention::Problem problem_of(const AttentionSweep& sweep) {
  return sweep.problem(only(sweep.dtypes, "--precision"), only(sweep.masks, "--mask"), only(sweep.dims, "--dim"),
                       only(sweep.lens, "--len"));
}

Life life_of(const Device& device, const char* what, const RowObject& asked, const ProfileOptions& o, const Host& host) {
  RowObject settings{{"what", what}};
  settings.update(asked);
  settings["steps"] = o.steps;
  settings["warmup"] = o.warmup;
  if (o.only) settings["only"] = true;
  return {host, "profile", settings, device.name};
}

// A row for each line of the short tables; a long table is one row, its lines in the detail.
KeptProfile kept(ProfileResult result, const char* what, Life life, const Host& host) {
  auto record = parse_json<RowObject>(render_json(profile_record(result, false)), "a profile");
  record.erase("schema_version");
  std::size_t rows = 0;
  const auto add = [&](const RowObject& row, const RowObject& detail) {
    life.keep(RowObject{row.value("table", ""), rows++}.dump(), row, detail);
  };
  RowObject whole{{"table", "step"}, {"what", what}};
  for (const auto& [name, value] : record.items())
    if (!value.is_structured()) whole[name] = value;
  add(whole, RowObject::object());
  for (const auto& [name, lines] : record.items()) {
    if (!lines.is_array() || name == "notes") continue;
    if (name == "timeline" || name == "memory" || name == "at_peak" || name == "gaps" || name == "lanes") {
      add({{"table", name}, {"rows", lines.size()}}, {{"rows", lines}});
      continue;
    }
    for (const auto& line : lines) {
      RowObject row{{"table", name}};
      row.update(line);
      add(row, RowObject::object());
    }
  }
  KeptProfile k{std::move(result), {}};
  const bool stopped = host.stop();
  k.outcome.answer = stopped ? Answer::failed : Answer::yes;
  k.outcome.stopped = stopped;
  k.outcome.said = stopped ? life.stopped("before every step was recorded", "the tables are of those before it") : life.name();
  if (!stopped) k.outcome.life.emplace(std::move(life));
  return k;
}

}  // namespace

std::vector<std::string> variants_that_serve(const AttentionSweep& sweep, const Device& device) {
  problem_of(sweep);
  const bool all = std::find(sweep.variants.begin(), sweep.variants.end(), "all") != sweep.variants.end();
  std::vector<std::string> names, refusals;
  for (const AttentionCase& c : cases_of(sweep, device)) {
    check(c.too_large.empty(), Code::bad_argument, "{}", c.too_large);
    if (c.variant) names.emplace_back(c.variant->name);
    if (!c.variant) refusals.push_back(fmt::format("{} does not serve {}: {}", c.wanted, describe(c.problem), c.refusal));
  }
  check(refusals.empty() || (all && !names.empty()), Code::unsupported, "{}", joined(refusals, "; "));
  return names;
}

KeptProfile profile_attention_study(const AttentionSweep& sweep, const Device& device, const ProfileOptions& o, const Host& host) {
  ProfileAttention p;
  p.problem = problem_of(sweep);
  p.variants = variants_that_serve(sweep, device);
  p.passes = sweep.passes;
  p.of = sweep;
  p.of.seed = o.seed;
  Life life = life_of(device, "attention", json_of(sweep), o, host);  // before anything is measured for it
  return kept(profile_attention(p, device, o), "attention", std::move(life), host);
}

engine::Recipe only_step(const StepTime& t, engine::Purpose phase) {
  const engine::Recipe r =
      recipe_of(t, only(t.models, "--model"), engine::only_of(t.levers, "a profile"), only(lens_of(t), "--len"), phase);
  engine::check(r);
  return r;
}

KeptProfile profile_step_study(const StepTime& t, engine::Purpose phase, const Device& device, const ProfileOptions& options,
                               const Host& host) {
  ProfileOptions o = options;
  o.announce = host.announce;
  if (o.threads == 0) o.threads = std::max(1, available_cores() / (o.group ? o.group->rendezvous().local_ranks() : 1));
  ProfileStep s;
  s.recipe = only_step(t, phase);
  s.documents = t.documents;
  check(!o.group || !o.counters, Code::bad_argument, "--counters reads one card; leave out --counters, or --gpus and --ranks");
  s.memory_bytes = limit_of_a_run(device, t.memory, o.group);
  const std::uint64_t room = s.recipe.keep.found() ? 0 : room_for_a_run(device, t.memory, o.group);
  find_keep_as_first(s.recipe, o.group, [&] { engine::find_keep(s.recipe, room, device, o.threads); });
  const std::string misfit = host_misfit(engine::forecast(s.recipe, device, o.threads).host_bytes, device, o.group);
  check(misfit.empty(), Code::out_of_memory, "profile: {}", misfit);
  StepTime asked = t;
  asked.phases = {phase};
  if (o.group && !o.group->first()) return {profile_step(s, device, o), {}};
  Life life = life_of(device, "step", json_of(asked), o, host);  // before anything is measured for it
  return kept(profile_step(s, device, o), "step", std::move(life), host);
}

}  // namespace headroom::studies
