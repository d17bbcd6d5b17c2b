#include "studies/plan/search.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <numeric>
#include <tuple>

#include "base/text.h"
#include "base/threads.h"
#include "engine/forecast/keep_auto.h"
#include "studies/memory/model.h"
#include "studies/memory/room.h"

namespace headroom::studies {

using engine::Recipe;

Setting setting_of(const Plan& p, const Recipe& recipe) {
  Setting s;
  const engine::ForecastTotals f = engine::forecast_totals(recipe, p.device, p.workers);
  s.peak_bytes = f.peak_bytes, s.standing_bytes = f.standing_bytes, s.saved_bytes = f.bytes_at_peak(Phase::saved);
  s.parameter_bytes = f.bytes_at_peak(Phase::parameter), s.gradient_bytes = f.bytes_at_peak(Phase::gradient);
  s.optimizer_bytes = f.bytes_at_peak(Phase::optimizer);
  s.flops = f.flops;
  s.traffic = f.bytes;
  s.link_bytes = f.link_bytes;
  s.host_bytes = f.host_bytes;
  s.ms_at_least = f.ms;
  s.link_ms_at_least = f.link_ms;
  s.exposed_ms = f.exposed_ms;
  s.expected = f.expected;
  s.why_no_ms = f.why_no_ms;
  s.recipe = recipe;
  return s;
}

namespace {

// A pass that makes no gradients, or no update, has nothing to choose there: of settings that differ in nothing else one is tried.
bool says_more(const Plan& p, const Recipe& r) {
  const engine::Holding& h = r.holding;
  const bool no_update =
      h.updating == engine::Updating::after && h.gradients != engine::Gradients::none && h.moments == p.levers.holding.moments.front();
  if (p.use == ModelUse::gradients) return no_update;
  return p.use != ModelUse::forward || (no_update && h.gradients == engine::Gradients::whole && r.micro_batches == 1 && r.group() == 1 &&
                                        r.keep.first() == engine::Keep::everything);
}

bool accepted(const Recipe& r) {
  try {
    engine::check(r);
    return true;
  } catch (const Error&) { return false; }
}

// What the GPUs take of the batch: sequences of their own where they can be shared out, and a part of each where there are no more
// sequences than GPUs.
struct Share {
  std::int64_t each;  // sequences
  bool split_tokens;
};
std::vector<Share> shares_of(const Plan& p) {
  std::vector<Share> all;
  if (p.batch % p.gpus == 0) all.push_back({p.batch / p.gpus, false});
  if (p.gpus > 1 && p.batch <= p.gpus && p.len % (2 * std::int64_t(p.gpus)) == 0 && p.model.trained()) all.push_back({p.batch, true});
  return all;
}

// Every combination of levers that the engine accepts. One micro-batch's size divides a GPU's share of the batch.
std::vector<Recipe> recipes_of(const Plan& p) {
  std::vector<Recipe> all;
  const bool knows_host = p.device.ceilings.host_bytes_per_s > 0;  // else a setting on the host has no time
  const int shardings = p.gpus > 1 ? int(names_of<engine::Sharding>.name.size()) : 1;
  const auto add = [&](const engine::Levers& levers, const Share& share, std::int64_t micro, engine::Sharding sharding) {
    Recipe r = engine::recipe_of(p.model, micro, p.len, levers, purpose_of(p.use), {p.gpus, sharding, share.split_tokens});
    if (r.keep.group != 1 && r.group() == 1) return;  // it is the level by itself
    if (r.host() > 0 && !knows_host) return;
    r.micro_batches = int(share.each / micro);
    if (says_more(p, r) && accepted(r)) all.push_back(std::move(r));
  };
  for (const engine::Levers& levers : each_of(p.levers))
    for (const Share& share : shares_of(p))
      for (std::int64_t micro = share.each; micro >= 1; --micro)
        for (int sharding = 0; share.each % micro == 0 && sharding < shardings; ++sharding)
          add(levers, share, micro, engine::Sharding(sharding));
  return all;
}

// The levels that fit, or the least of all where none do: then the bytes say by how much.
engine::Keeping levels_for(const Plan& p, const Recipe& r, const Room& room) {
  return engine::keep_that_fits(r, room.for_peak(), p.device, p.workers).value_or(engine::Keeping{engine::Keep::input});
}

// 0 to n - 1 in an order whose every beginning is spread over all of them: a search that is stopped has tried some of each lever.
std::vector<std::size_t> spread(std::size_t n) {
  std::size_t step = std::max<std::size_t>(1, std::size_t(0.618 * double(n)));
  while (std::gcd(step, n) > 1) ++step;
  std::vector<std::size_t> order(n);
  for (std::size_t i = 0; i < n; ++i) order[i] = i * step % n;
  return order;
}

// The forecasts, shared out to every core: each is a dry run of its own. A recipe that no kernel serves is left out.
Search forecasts_of(const Plan& p, const std::vector<Recipe>& wanted) {
  const Room room = room_of(p.device, p.memory_bytes, p.gpus);
  std::vector<std::optional<Setting>> found(wanted.size());
  const auto order = spread(wanted.size());
  Threads threads;
  std::mutex saying;
  std::size_t done = 0;
  threads.share(std::int64_t(wanted.size()), [&](std::int64_t at, int) {
    const std::size_t i = order[std::size_t(at)];
    if (p.stop()) return;
    try {
      Recipe r = wanted[i];
      if (!r.keep.found()) r.keep = levels_for(p, r, room);
      found[i] = setting_of(p, r);
    } catch (const Error& e) {
      if (e.at.code == Code::interrupted) return;
      if (e.at.code != Code::unsupported) throw;
    }
    const std::lock_guard lock(saying);
    ++done;
    p.progress(double(done) / double(wanted.size()), fmt::format("setting {} of {}", done, wanted.size()));
  });
  Search search{{}, done, wanted.size()};
  for (auto& s : found)
    if (s) search.all.push_back(std::move(*s));
  return search;
}

By by_of(const std::vector<Setting>& all) {
  if (std::ranges::any_of(all, [](const Setting& s) { return s.expected.has_value(); })) return By::ms;
  return std::ranges::all_of(all, [](const Setting& s) { return s.ms_at_least > 0; }) ? By::ms_at_least : By::flops;
}

}  // namespace

// A setting on the host has no time where the link is not known: it is left out, and a note says so if it was named.
std::string host_left_out(const Plan& p) {
  const auto& keeps = p.levers.keep;
  const auto on_host = [](const engine::Keeping& k) { return k.host != 0; };
  if (keeps == every_keep() || std::none_of(keeps.begin(), keeps.end(), on_host) || p.device.ceilings.host_bytes_per_s > 0) return "";
  if (p.device.kind == DeviceKind::cpu) return "--keep host: a CPU's own memory is the host's, so nothing is saved";
  return fmt::format("--keep host: how fast {} and its host exchange bytes is not known; say host_gb_s in the device's file",
                     p.device.name);
}

// Why nothing was counted in a precision that was asked for; empty where something was.
std::string left_out(const Plan& p, Precision precision, const std::vector<Setting>& all) {
  if (std::any_of(all.begin(), all.end(), [&](const Setting& s) { return s.recipe.precision == precision; })) return "";
  auto wanted = recipes_of(p);
  const auto first = std::find_if(wanted.begin(), wanted.end(), [&](const Recipe& r) { return r.precision == precision; });
  if (first == wanted.end()) return "";
  try {
    if (!first->keep.found()) first->keep = {};
    setting_of(p, *first);
  } catch (const Error& e) { return fmt::format("{} is left out: {}.", name_of(precision), e.what()); }
  return "";
}

// The recipes of every combination that the engine takes; an Error where there is none.
std::vector<Recipe> recipes_or_why_none(const Plan& p) {
  check(p.gpus >= 1 && !shares_of(p).empty(), Code::bad_argument,
        "--batch {} is of all GPUs together and cannot be shared out to {}; make it a multiple{}", p.batch, p.gpus,
        p.batch < p.gpus ? fmt::format(", or --len a multiple of {}, so that tokens are", 2 * p.gpus) : "");
  const auto recipes = recipes_of(p);
  if (recipes.empty()) {  // the engine's own reason, of the plainest combination
    const auto combinations = each_of(p.levers);
    check(!combinations.empty(), Code::bad_argument, "plan: nothing to choose from");
    const Share share = shares_of(p)[0];
    Recipe r = engine::recipe_of(p.model, share.each, p.len, combinations.front(), purpose_of(p.use),
                                 {p.gpus, engine::Sharding::none, share.split_tokens});
    if (!r.keep.found()) r.keep = {engine::Keep::input};
    engine::check(r);
    const std::string host = host_left_out(p);
    check(host.empty(), Code::bad_argument, "{}", host);
    engine::LeverLists asked = p.levers;
    asked.precision = levers_to_try().precision;
    throw Error(Code::bad_argument, fmt::format("--phase {} has no such choice; leave {} out", names_of<ModelUse>.of(p.use),
                                                changed_options(asked, levers_to_try())));
  }
  return recipes;
}

double Search::cost(const Setting& s) const {
  if (by == By::ms) return s.expected ? s.expected->ms : std::numeric_limits<double>::infinity();
  return by == By::ms_at_least ? s.ms_at_least : s.flops;
}

Search settings_of(const Plan& p) {
  const auto recipes = recipes_or_why_none(p);
  Search search = forecasts_of(p, recipes);
  if (search.all.empty() && search.whole()) engine::forecast(recipes[0], p.device, p.workers);  // says why it is not served
  search.by = by_of(search.all);
  std::ranges::stable_sort(search.all, {},
                           [&](const Setting& s) { return std::tuple(search.cost(s), s.expected ? 0 : s.ms_at_least, s.peak_bytes); });
  return search;
}

}  // namespace headroom::studies
